"""The corpus that any machine can fetch, from a wheel of the same make."""

import gzip
import json
import zipfile

from examples.botocore_text import documents


def test_a_document_is_what_one_operation_or_shape_says(tmp_path):
    """Without markup, a line per paragraph, members by name; short ones and other files are left out."""
    prose = "<p>Deletes the &quot;thing&quot; for good, with all that it holds.</p><p>There is  no way\nback, whatever <b>anybody</b> says.</p>"
    service = {
        "operations": {"DeleteThing": {"documentation": prose}, "Short": {"documentation": "Too short."}},
        "shapes": {
            "Thing": {
                "documentation": "<p>Something that can be deleted, and is described at length.</p>",
                "members": {"Name": {"documentation": "<p>How it is called.</p>"}, "Size": {"shape": "Long"}},
            }
        },
    }
    wheel = tmp_path / "botocore.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(
            "botocore/data/b/2020/service-2.json.gz", gzip.compress(json.dumps(service).encode())
        )
        archive.writestr("botocore/data/a/2020/service-2.json", json.dumps({"operations": {}, "shapes": {}}))
        archive.writestr("botocore/data/b/2020/paginators-1.json", json.dumps(service))
    assert list(documents(str(wheel))) == [
        'DeleteThing\nDeletes the "thing" for good, with all that it holds.\nThere is no way back, whatever anybody says.',
        "Thing\nSomething that can be deleted, and is described at length.\nName: How it is called.",
    ]
