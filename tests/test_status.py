"""The status page says what the records say."""

import status


def test_the_page_is_up_to_date():
    stored = (status.ROOT / "book/status.md").read_text(encoding="utf-8")
    assert stored == status.page(), "book/status.md is out of date: run `make sync`"


def test_a_wrong_verdict_is_counted_as_wrong():
    known = (
        "# Title\n\n## a_lab\n\n| submission | should | verdict | decided by | right |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| the starter | fail | fail | launches | yes |\n"
        "| a miss | fail | pass | — | NO |\n"
    )
    assert "| a_lab | 2 | 1 |" in status.submissions(known)


def test_each_notebook_has_its_row():
    record = {"date": "2026-01-02", "device": "cpu", "python": "3.13.0", "seconds": 3.4}
    table = status.executions({"labs/x.ipynb": {**record, "versions": {"jax": "1.2.3"}}})
    assert "| labs/x.ipynb | 2026-01-02 | cpu | Python 3.13.0, jax 1.2.3 | 3 s |" in table
