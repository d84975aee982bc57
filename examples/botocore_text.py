"""Prose that any machine can fetch: the service documentation in the package botocore (Apache-2.0), as JSONL.

    pip download --no-deps botocore==1.44.8 --dest wheels
    python examples/botocore_text.py wheels/botocore-1.44.8-py3-none-any.whl text.jsonl
    phasescope corpus runs/corpus --text text.jsonl --vocabulary 1024

One document is all that one operation or shape of a service says, with the markup taken out.
"""

from __future__ import annotations

import gzip
import html
import json
import re
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

TAG = re.compile(r"<[^>]*>")
PARAGRAPH = re.compile(r"</(p|li|h\d|note|important|dt|dd)>|<br\s*/?>", re.IGNORECASE)


def documents(wheel: str) -> Iterator[str]:
    """The documentation of every operation and shape, service by service."""
    with zipfile.ZipFile(wheel) as archive:
        for name in sorted(archive.namelist()):
            if not re.fullmatch(r"botocore/data/[^/]+/[^/]+/service-2\.json(\.gz)?", name):
                continue
            raw = archive.read(name)
            service = json.loads(gzip.decompress(raw) if name.endswith(".gz") else raw)
            for kind in ("operations", "shapes"):
                for title, body in service.get(kind, {}).items():
                    text = "\n".join(prose(body))
                    if len(text) > 80:
                        yield f"{title}\n{text}"


def prose(node: object) -> Iterator[str]:
    """Every documentation string below a node, members with their names."""
    if not isinstance(node, dict):
        return
    if isinstance(said := node.get("documentation"), str):
        yield plain(said)
    members = node.get("members")
    if isinstance(members, dict):
        for name, member in members.items():
            for text in prose(member):
                yield f"{name}: {text}"


def plain(markup: str) -> str:
    """Text without tags, a line per paragraph."""
    text = html.unescape(TAG.sub("", PARAGRAPH.sub("\n", markup)))
    return "\n".join(line for line in (" ".join(part.split()) for part in text.split("\n")) if line)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/botocore_text.py WHEEL OUT.jsonl")
    with Path(sys.argv[2]).open("w", encoding="utf-8") as out:
        for text in documents(sys.argv[1]):
            out.write(json.dumps({"text": text}) + "\n")
