"""A Kafka broker that lets nobody in without TLS and a password."""

import subprocess
from pathlib import Path

from tests.services.kafka import PROPERTIES, KafkaBroker
from tests.services.server import run
from tools.cds import OF_SERVERS
from tools.java import find_java

# Each of these may stand nowhere except in the settings of a client: tests look for them.
PASSWORD = "sasl-s3cret-9d1f"
STORE_PASSWORD = "store-s3cret-4c7a"
USER = "reader"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_PLAIN = "PLAINTEXT://127.0.0.1:{port}"
_SECURE = f"""
inter.broker.listener.name=SASL_SSL
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
ssl.keystore.type=PKCS12
ssl.keystore.location={{keys}}
ssl.keystore.password={STORE_PASSWORD}
ssl.truststore.type=PKCS12
ssl.truststore.location={{trusted}}
ssl.truststore.password={STORE_PASSWORD}
listener.name.sasl_ssl.plain.sasl.jaas.config={_LOGIN} username="{USER}" password="{PASSWORD}" user_{USER}="{PASSWORD}";
"""


class SaslBroker(KafkaBroker):
    """SASL_SSL with a key of its own, made by the JDK's keytool."""

    @property
    def properties(self) -> str:
        text = PROPERTIES.replace(_PLAIN, _PLAIN.replace("PLAINTEXT", "SASL_SSL"))
        text = text.replace("CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL")
        return text + _SECURE.replace("{keys}", str(self._keys)).replace("{trusted}", str(self._trusted))

    @property
    def secrets(self) -> tuple[str, ...]:
        """What must not be found anywhere."""
        return PASSWORD, STORE_PASSWORD

    @property
    def spark_options(self) -> dict[str, str]:
        """How Spark's source reaches it."""
        return {
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'{_LOGIN} username="{USER}" password="{PASSWORD}";',
            "kafka.ssl.truststore.location": str(self._trusted),
            "kafka.ssl.truststore.password": STORE_PASSWORD,
            "kafka.ssl.truststore.type": "PKCS12",
        }

    @property
    def client_settings(self) -> dict[str, str]:
        """How the clients of the tests reach it."""
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self._certificate),
        }

    def prepare(self):
        super().prepare()
        if self._trusted.exists():
            return
        store = ["-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
        self._keytool(
            "-genkeypair",
            "-alias",
            "broker",
            "-keyalg",
            "RSA",
            "-keysize",
            "2048",
            "-dname",
            "CN=localhost",
            "-ext",
            "SAN=ip:127.0.0.1",
            "-validity",
            "3650",
            "-keystore",
            self._keys,
            *store,
        )
        self._keytool(
            "-exportcert", "-rfc", "-alias", "broker", "-file", self._certificate, "-keystore", self._keys, *store
        )
        self._keytool(
            "-importcert", "-noprompt", "-alias", "ca", "-file", self._certificate, "-keystore", self._trusted, *store
        )

    def answers(self):
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        try:
            AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **self.client_settings}).list_topics(
                timeout=5
            )
        except KafkaException:
            return False
        return True

    @property
    def _keys(self) -> Path:
        return self.data_dir / "keys.p12"

    @property
    def _trusted(self) -> Path:
        return self.data_dir / "trusted.p12"

    @property
    def _certificate(self) -> Path:
        return self.data_dir / "broker.pem"

    def _keytool(self, *arguments) -> None:
        # It is called as a class of java.base, because a trimmed Java has no program of that name.
        run(
            "making a key",
            [find_java().java, *OF_SERVERS, "-m", "java.base/sun.security.tools.keytool.Main", *arguments],
            stdin=subprocess.DEVNULL,
        )
