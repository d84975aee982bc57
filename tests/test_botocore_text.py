"""The corpus that any machine can fetch, from a wheel of the same make."""

import gzip
import json
import zipfile

from examples.botocore_text import documents

DELETES = "<p>Deletes the &quot;thing&quot; for good, with all that it holds.</p>"
WARNS = "<p>There is  no way   back, whatever <b>anybody</b> says.</p>"
SERVICE = {
    "operations": {
        "DeleteThing": {"documentation": DELETES + WARNS},
        "Short": {"documentation": "Too short."},
    },
    "shapes": {
        "Thing": {
            "documentation": "<p>Something that can be deleted, and is described at length.</p>",
            "members": {"Name": {"documentation": "<p>How it is called.</p>"}, "Size": {"shape": "Long"}},
        }
    },
}


def test_a_document_is_what_one_operation_or_shape_says(tmp_path):
    """Without markup, a line per paragraph, members by name; short ones and other files are left out."""
    whole = json.dumps(SERVICE)
    with zipfile.ZipFile(tmp_path / "botocore.whl", "w") as archive:
        archive.writestr("botocore/data/b/2020/service-2.json.gz", gzip.compress(whole.encode()))
        archive.writestr("botocore/data/a/2020/service-2.json", json.dumps({"operations": {}, "shapes": {}}))
        archive.writestr("botocore/data/b/2020/paginators-1.json", whole)
    assert list(documents(str(tmp_path / "botocore.whl"))) == [
        'DeleteThing\nDeletes the "thing" for good, with all that it holds.\n'
        "There is no way back, whatever anybody says.",
        "Thing\nSomething that can be deleted, and is described at length.\nName: How it is called.",
    ]
