"""Mends two pieces of the pages' HTML that screen readers stumble over.

Knows the HTML that MyST writes for a list of tasks and docutils for a bibliography; knows nothing
of what the pages say. Loaded by Sphinx; see `_config.yml`.
"""

from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

#: What is written, and what stands there instead.
MENDED = (
    # Without a name, and nobody can tick it: on the screen the list is as useful as on paper.
    (
        '<input class="task-list-item-checkbox" disabled="disabled" type="checkbox">',
        '<input class="task-list-item-checkbox" type="checkbox" aria-label="Done">',
    ),
    # A list may hold items alone, but the links back to the text lie in these entries openly.
    ('<div role="list" class="citation-list">', '<div class="citation-list">'),
    (' role="doc-biblioentry">', ">"),
)


def mend(html: str) -> str:
    """Return a page's HTML with every piece of `MENDED` replaced."""
    for written, mended in MENDED:
        html = html.replace(written, mended)
    return html


def _on_page(
    app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: nodes.document
) -> None:
    if "body" in context:
        context["body"] = mend(context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("html-page-context", _on_page)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
