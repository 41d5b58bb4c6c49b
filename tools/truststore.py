"""A Java trust store made of the certificates that Python trusts.

A Java from a wheel brings certificates of its own and does not know those that an administrator added to the machine,
so behind a company's proxy pip would work and Spark's resolver would not. The JKS format is small enough to be written
without keytool.
"""

import hashlib
import os
import ssl
import struct
from pathlib import Path

PASSWORD = "changeit"  # This is Java's default. It protects nothing here, and only feeds the checksum.
MAGIC, VERSION, TRUSTED = 0xFEEDFEED, 2, 2


def trusted_certificates() -> list[bytes]:
    """The DER certificates of OpenSSL's default places, including $SSL_CERT_FILE and $SSL_CERT_DIR;
    empty when there are none."""
    paths = ssl.get_default_verify_paths()
    files = [Path(paths.cafile)] if paths.cafile else []
    if not files and paths.capath:
        files = sorted(entry for entry in Path(paths.capath).iterdir() if entry.is_file())
    found: dict[bytes, None] = {}  # A dict keeps the order and drops repeats.
    for file in files:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cafile=os.fspath(file))
        except (ssl.SSLError, OSError):
            continue  # It is a file of another kind in the folder.
        found.update(dict.fromkeys(context.get_ca_certs(binary_form=True)))
    return list(found)


def _utf(text: str) -> bytes:
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def jks(certificates: list[bytes]) -> bytes:
    """The bytes of a JKS key store that trusts `certificates`."""
    body = struct.pack(">III", MAGIC, VERSION, len(certificates))
    for number, der in enumerate(certificates):
        # The creation date is zero, so the same certificates always give the same bytes.
        body += struct.pack(">I", TRUSTED) + _utf(f"ca-{number}") + struct.pack(">Q", 0) + _utf("X.509")
        body += struct.pack(">I", len(der)) + der
    return body + hashlib.sha1(PASSWORD.encode("utf-16-be") + b"Mighty Aphrodite" + body).digest()
