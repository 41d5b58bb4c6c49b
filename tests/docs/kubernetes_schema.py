"""Whether a manifest has only the fields that Kubernetes knows, each of its type, and those that it must have.

``kubernetes_schema.json`` is what the API server publishes, without what no page has: types by their short names, each
with its fields. ``python -m tests.docs.kubernetes_schema SWAGGER`` makes it from that file of Kubernetes' own
(``/openapi/v2``), and tests/e2e/test_kubernetes.py compares it with what a real API server says.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_suffix(".json")
KINDS = {
    ("apps/v1", "Deployment"): "io.k8s.api.apps.v1.Deployment",
    ("v1", "ServiceAccount"): "io.k8s.api.core.v1.ServiceAccount",
    ("rbac.authorization.k8s.io/v1", "Role"): "io.k8s.api.rbac.v1.Role",
    ("rbac.authorization.k8s.io/v1", "RoleBinding"): "io.k8s.api.rbac.v1.RoleBinding",
}
_PYTHON = {"string": str, "integer": int, "boolean": bool, "object": dict}
# They are written as a string or as a number.
_FREE = ("Quantity", "IntOrString", "Time", "MicroTime", "FieldsV1")


def made_from(swagger: Mapping[str, Any]) -> dict[str, Any]:
    """The types that KINDS are made of: {short name: {"fields": {name: type}, "required": [name, ...]}}.

    A type is a short name or JSON's own; [type] is a list of it, and {type} a map to it.
    """
    found: dict[str, Any] = {}
    waiting = list(KINDS.values())
    while waiting:
        name = waiting.pop()
        if _short(name) in found:
            continue
        said = swagger["definitions"][name]
        fields = {field: _type(of, waiting) for field, of in sorted(said.get("properties", {}).items())}
        found[_short(name)] = {"fields": fields, "required": said.get("required", [])}
    return dict(sorted(found.items()))


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _type(said: Mapping[str, Any], waiting: list[str]) -> str:
    if "$ref" in said:
        name = said["$ref"].rpartition("/")[2]
        waiting.append(name)
        return _short(name)
    if said.get("type") == "array":
        return f"[{_type(said['items'], waiting)}]"
    if "additionalProperties" in said:
        return f"{{{_type(said['additionalProperties'], waiting)}}}"
    return said.get("type", "object")


def wrong(document: Mapping[str, Any]) -> list[str]:
    """What the API server would refuse of a manifest's form, or leave out."""
    kind = KINDS.get((document.get("apiVersion", ""), document.get("kind", "")))
    if kind is None:
        return [f"tests/docs/kubernetes_schema.py does not know {document.get('apiVersion')} {document.get('kind')}"]
    return list(_wrong(document, _short(kind), json.loads(FILE.read_text()), document["kind"]))


def _wrong(value: Any, kind: str, types: Mapping[str, Any], where: str) -> Iterator[str]:
    if kind.startswith("["):
        for number, each in enumerate(value) if isinstance(value, list) else ():
            yield from _wrong(each, kind[1:-1], types, f"{where}[{number}]")
        if not isinstance(value, list):
            yield f"{where} is no list"
    elif kind.startswith("{"):
        for name, each in value.items() if isinstance(value, dict) else ():
            yield from _wrong(each, kind[1:-1], types, f"{where}.{name}")
        if not isinstance(value, dict):
            yield f"{where} is no map"
    elif kind in _PYTHON:
        if type(value) is not _PYTHON[kind]:
            yield f"{where} is no {kind}"
    elif kind not in _FREE:
        known = types[kind]
        if not isinstance(value, dict):
            yield f"{where} is no {kind}"
            return
        yield from (f"{where} has no {name}" for name in known["required"] if name not in value)
        for name, each in value.items():
            if name in known["fields"]:
                yield from _wrong(each, known["fields"][name], types, f"{where}.{name}")
            else:
                yield f"{where}.{name} is no field of a {kind}"


if __name__ == "__main__":
    made = made_from(json.loads(Path(sys.argv[1]).read_text()))
    FILE.write_text("{\n" + ",\n".join(f'"{name}": {json.dumps(said)}' for name, said in made.items()) + "\n}\n")
