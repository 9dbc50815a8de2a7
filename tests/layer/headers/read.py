"""Reads the answers that the test write_answers wrote, and compares them with what they were to say."""

import hashlib
import json
import sys

import http_sf


def plain(parameters):
    """Strings instead of the parser's own types."""
    return {key: str(value) if isinstance(value, str) else value for key, value in parameters.items()}


count = 0
with open(sys.argv[1], encoding="ascii") as lines:
    for line in lines:
        answer = json.loads(line)
        members = http_sf.parse(answer["policy"].encode(), tltype="list")
        found = [(name, plain(parameters)) for name, parameters in members]
        key = answer["key"]
        pk = None if key is None else hashlib.sha256(key.encode()).digest()[:8]
        wanted = []
        for policy in answer["policies"]:
            values = {**{name: policy[name] for name in ("q", "qu", "w")}, "pk": pk}
            present = {name: value for name, value in values.items() if value is not None}
            wanted.append((policy["name"], present))
        assert found == wanted, line
        assert all(list(one) == list(other) for (_, one), (_, other) in zip(found, wanted)), line

        [(name, parameters)] = http_sf.parse(answer["limit"].encode(), tltype="list")
        shown = answer["shown"]
        values = {"r": shown["r"], "t": shown["t"], "pk": pk}
        wanted = {name: value for name, value in values.items() if value is not None}
        assert (name, plain(parameters)) == (shown["name"], wanted), line
        assert list(parameters) == list(wanted), line
        assert all(type(parameters[name]) is int for name in parameters if name != "pk"), line
        count += 1

print(f"http_sf {http_sf.__version__} read {count} answers")
