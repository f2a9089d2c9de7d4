"""An operator between zones can follow the advice of the error about a record that was changed by hand."""

from __future__ import annotations

import json

import pytest
from tests.forked_programs import LoadedPrograms
from tests.task.zones.returning_pair import Pair

from pidts.model import Halted, PrecheckFailed


@pytest.mark.timeout(600)
def test_a_note_that_cannot_be_read_is_written_again_once_it_is_deleted(pair: Pair, programs: LoadedPrograms) -> None:
    for name in ("", "forwards"):
        row = f"pidts_meta.note WHERE task = 'k_{pair.database}-a-b' AND table_schema = '' AND table_name = '{name}'"
        ((written,),) = pair.sql("b", f"SELECT told FROM {row}")
        pair.sql("b", f"UPDATE {row.replace(' WHERE', ' SET told = 5 WHERE')}")
        try:
            ran = programs.run(["run", f"{pair.file}@a-b", "--until-synced"], 400)
            assert ran.returncode in {PrecheckFailed.exit_code, Halted.exit_code}
            told = ran.stderr.decode()
            assert "record-altered" in told
            assert f"table_name = '{name}'" in told
            assert "delete this row alone" in told
        finally:
            pair.sql("b", f"DELETE FROM {row}")
        pair.carry("a-b")
        assert [json.loads(text) for (text,) in pair.sql("b", f"SELECT told FROM {row}")] == [json.loads(written)]
    pair.differ()
    pair.carry("b-a")
