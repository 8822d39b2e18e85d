"""`litmus`, `check`, `syncs`, `convert` and `--trace` as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from racecheck.cli import main
from racecheck.litmus import judge, load, parse
from racecheck.litmus.export import export

ROOT = Path(__file__).resolve().parent.parent.parent
SHIPPED = ROOT / "scenarios" / "litmus"

RACE = """# title: a rewrite
# expect: RACE
alloc pinned P
alloc device D
host_write P
h2d P -> D on s0
host_write P
"""
SAFE = RACE.replace("RACE", "SAFE").replace("on s0\n", "on s0\nsync s0\n")


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line in a folder with two programs: exit code, stdout, stderr."""
    (tmp_path / "race.litmus").write_text(RACE)
    (tmp_path / "safe.litmus").write_text(SAFE)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_shipped_programs_agree(run):
    """All 142, with a line each and a summary."""
    code, out, err = run("litmus", str(SHIPPED))
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "142 of 142 programs agree"
    assert len(out.splitlines()) == 144


def test_a_wrong_expectation_is_exit_1(run):
    """FAIL names what was expected."""
    Path("race.litmus").write_text(RACE.replace("expect: RACE", "expect: SAFE"))
    code, out, _ = run("litmus", "race.litmus", "safe.litmus")
    assert code == 1
    assert "race.litmus  RACE   FAIL, expected SAFE" in out
    assert "1 of 2 programs agree" in out


def test_a_malformed_file_is_exit_2_and_the_others_are_judged(run):
    """One line with file, line and column on stderr; nothing is lost."""
    Path("bad.litmus").write_text("# expect: RACE\nalloc pinnd P\n")
    code, out, err = run("litmus", ".")
    assert code == 2
    assert "2 of 2 programs agree" in out
    assert err == (
        "bad.litmus:2:7: expected a kind of memory (pinned, pageable, mapped, device), found 'pinnd'\n"
    )


def test_explain_tells_the_story(run):
    """Both lines, the reason and the repairs."""
    code, out, _ = run("litmus", "--explain", "race.litmus")
    assert code == 0
    for words in ("race.litmus:6", "race.litmus:7", "because", "repair", "record an event on stream s0"):
        assert words in out


def test_litmus_json(run):
    """One object; findings carry fingerprint, reasons and repairs."""
    code, out, _ = run("litmus", "--json", ".")
    report = json.loads(out)
    assert code == 0
    assert (report["format"], report["agree"]) == ("racecheck-litmus/1", 2)
    (finding,) = report["programs"][0]["findings"]
    assert finding["rule"] == "race/h2d-read-vs-host-write"
    assert finding["reasons"]
    assert finding["repairs"]


MISTAKES = [
    ("litmus none.litmus", "none.litmus:1: does not exist; name a .litmus file or a folder of them"),
    ("check none", "none:1: cannot be read (No such file or directory); name a trace file"),
    ("syncs none", "none:1: cannot be read (No such file or directory); name a trace file"),
    ("check race.litmus --jsn", "racecheck check: no such option: --jsn; write --json"),
    (
        "convert race.litmus x.litmus",
        "x.litmus: exactly one file must be a .litmus program; name the other kind, or one in .perfetto.json",
    ),
    (
        "convert race.litmus no/x",
        "no/x:1: cannot be written (No such file or directory); name a file that can",
    ),
    (
        "convert race.litmus no/x.perfetto.json",
        "no/x.perfetto.json:1: cannot be written (No such file or directory); name a file that can",
    ),
    (
        "check race.litmus --html no/x.html",
        "racecheck check: --html no/x.html: cannot be written (No such file or directory); name another file",
    ),
    (
        "litmus race.litmus --html no/x.html",
        "racecheck litmus: --html no/x.html: cannot be written (No such file or directory); "
        "name another file",
    ),
    ("litmus", "racecheck litmus: no PATH is given; name a file or a folder"),
]


@pytest.mark.parametrize(("line", "message"), MISTAKES)
def test_mistakes_are_one_line_and_exit_2(run, line, message):
    """What is wrong and what to write instead."""
    assert run(*line.split()) == (2, "", message + "\n")


def test_a_program_becomes_a_trace_and_is_judged(run):
    """convert, then check: same verdict, and the exit codes of a verdict."""
    assert run("convert", "race.litmus", "race.jsonl")[0] == 0
    assert run("convert", "safe.litmus", "safe.jsonl")[0] == 0
    assert run("check", "race.jsonl")[0] == 1
    code, out, _ = run("check", "safe.jsonl")
    assert (code, out) == (0, "verdict: clean; 6 records, rewrites checked: 1\n")
    code, out, _ = run("check", "--json", "race.jsonl")
    assert (code, json.loads(out)["verdict"]) == (1, "race")


def test_a_damaged_trace_is_judged_only_when_asked(run):
    """Exit 2 either way; --partial prints the verdict of what comes before."""
    run("convert", "race.litmus", "race.jsonl")
    whole = Path("race.jsonl").read_bytes()
    Path("race.jsonl").write_bytes(whole[:-30])
    assert run("check", "race.jsonl")[:2] == (2, "")
    code, out, err = run("check", "--partial", "race.jsonl")
    assert code == 2
    assert out.startswith("verdict: inconclusive")
    assert err.startswith("race.jsonl:6: ends in the middle")


@pytest.mark.parametrize(
    ("command", "remedy"),
    [
        ("check", "--partial judges what comes before it"),
        ("syncs", "`racecheck check --partial` judges what comes before it"),
        ("convert", "`racecheck check --partial` judges what comes before it"),
    ],
)
def test_the_remedy_for_damage_is_one_that_the_command_has(run, command, remedy):
    """Only `check` has --partial; the others name it."""
    run("convert", "race.litmus", "race.jsonl")
    whole = Path("race.jsonl").read_text()
    target = ("y.litmus",) if command == "convert" else ()
    damage = {"ends in the middle of a record": whole[:-30], "is not a line of JSON": whole + "x\n"}
    damage["is a record of the unknown type 'x'"] = whole + '{"record":"x"}\n'
    for what, text in damage.items():
        Path("cut").write_text(text)
        code, out, err = run(command, "cut", *target)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert what in err
        assert err.endswith(f"; {remedy}\n")


@pytest.mark.parametrize("text", ["[scenario]\nname = 'x'\n", "# prose\n", "{\n", '{"format":', "[1]\n", ""])
@pytest.mark.parametrize("command", ["check", "check --partial", "syncs", "convert"])
def test_what_is_no_trace_is_called_so(run, command, text):
    """A scenario, a report: no part of it can be judged."""
    Path("other.toml").write_text(text)
    target = ("y.litmus",) if command == "convert" else ()
    code, out, err = run(*command.split(), "other.toml", *target)
    assert (code, out) == (2, "")
    told = 'is not a trace; the first line must be {"format": "racecheck-trace/1"}'
    assert err == f"other.toml:1: {told if text else 'is empty; a trace starts with its format line'}\n"


def test_a_trace_that_contradicts_itself_names_the_line(run):
    """A replay of a graph that was never captured."""
    lines = ['{"format": "racecheck-trace/1"}', '{"record":"replay","thread":"m","graph":"g","stream":"s"}']
    Path("t").write_text("\n".join(lines) + "\n")
    code, _, err = run("check", "t")
    assert code == 2
    assert err.startswith("t:2: ")
    assert "never captured" in err


def test_syncs_says_what_each_wait_is_for(run):
    """The load-bearing one names its buffer."""
    code, out, _ = run("syncs", "safe.litmus")
    assert code == 0
    assert "safe.litmus:7  stream synchronisation, 1 time: load-bearing: without it P would race" in out
    report = json.loads(run("syncs", "--json", "safe.litmus")[1])
    assert report["syncs"][0]["protects"] == ["P"]


WITHOUT_VALUES = [
    path for path in sorted(SHIPPED.glob("*.litmus")) if "expect: STALE" not in path.read_text()
]


@pytest.mark.parametrize("path", WITHOUT_VALUES, ids=lambda path: path.stem)
def test_export_keeps_the_verdict(path):
    """A program that went through a trace and back comes to the same verdict."""
    judgement = judge(load(path))
    again = parse(export(judgement.trace))
    assert (judge(again).verdict, again.expect) == (judgement.verdict, judgement.verdict)


def test_stale_has_no_litmus_form(run):
    """It is refused, naming the record."""
    Path("stale.litmus").write_text(
        "# expect: STALE\nalloc pageable X\nhost_write X as a\nhost_read X want X=b\n"
    )
    run("convert", "stale.litmus", "stale.jsonl")
    code, _, err = run("convert", "stale.jsonl", "back.litmus")
    assert code == 2
    assert err == (
        "stale.jsonl:5: a stale operand, made at stale.litmus:4, has no litmus form; "
        "judge the trace itself (racecheck check), or record one without stale.litmus:4\n"
    )


def _node(**more):
    return {"kind": "kernel", "reads": [[0, 8]], "writes": [[64, 72]], **more}


def _work(**more):
    return {"record": "device_op", "thread": "m", "stream": "s", "node": _node(**more)}


_LABEL = {"record": "label", "thread": "m", "span": [0, 8], "value": "a"}
_WANT = {"record": "want", "thread": "m", "span": [200, 208], "value": "a"}
_WRITE = {"record": "host_access", "thread": "m", "writes": [[0, 8]]}
UNSAYABLE = {
    "a write that leaves some of its bytes as they are": [
        _WRITE, _LABEL, _work(partial=True),
    ],
    "a label that does not follow the write of just its bytes": [_LABEL],
    "a want that the next operation does not read": [_WANT, _work()],
    "a want that nothing follows": [_WANT],
    "work that reads several places at any time": [_work(reads=[], any_reads=[[0, 8]])],
    "a graph with branches": [
        {"record": "capture", "thread": "m", "graph": "g", "nodes": [_node(), _node()], "after": [[], []]},
    ],
}  # fmt: skip


@pytest.mark.parametrize("what", UNSAYABLE)
def test_what_has_no_litmus_form_is_told_with_its_file_and_line(run, what):
    """And with something that can be done about it: a shorter trace may have such a record too."""
    records = [{"format": "racecheck-trace/1"}, *UNSAYABLE[what]]
    Path("a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    code, out, err = run("convert", "a.jsonl", "back.litmus")
    assert (code, out, Path("back.litmus").exists()) == (2, "", False)
    assert err == (
        f"a.jsonl:{len(records)}: {what} has no litmus form; "
        "judge the trace itself (racecheck check), or record one without it\n"
    )


def test_run_writes_its_trace(run, tmp_path):
    """The trace of a row comes to the row's verdict; several rows are refused."""
    scenario = str(ROOT / "scenarios" / "qwen3-tts.toml")
    options = (scenario, "--runner", "piecewise", "--slots", "1", "--steps", "16")
    assert run("run", *options, "--trace", "t.jsonl")[0] == 1
    code, out, _ = run("check", "t.jsonl")
    assert code == 1
    assert "code_predictor_sampler.gather_indices" in out
    code, _, err = run("run", scenario, "--trace", "t.jsonl")
    assert code == 2
    assert err.startswith("racecheck run: --trace: a trace is that of one row")


def test_explain_of_a_hang_and_of_a_stale_operand(run):
    """The first collective that differs; the write that left the wrong value."""
    Path("hang.litmus").write_text("# expect: HANG\nrank0: coll A\nrank1: coll B\n")
    out = run("litmus", "--explain", "hang.litmus")[1]
    told = "collective 1: rank 0 issues A at hang.litmus:2 and waits for ever; rank 1 issues B instead"
    assert told in " ".join(out.split())
    (program,) = json.loads(run("litmus", "--json", "hang.litmus")[1])["programs"]
    assert program["diverged"] == "ranks differ in collective 1: rank 0: A, rank 1: B"
    assert [finding["kind"] for finding in program["findings"]] == ["hang"]
    code, out, _ = run("check", "hang.litmus")
    assert (code, told in " ".join(out.split()), "verdict: hang" in out) == (1, True, True)
    Path("stale.litmus").write_text(
        "# expect: STALE\nalloc pageable X\nhost_write X as b\nhost_read X want X=a\n"
    )
    out = run("litmus", "--explain", "stale.litmus")[1]
    for words in ("host write at stale.litmus:3", "consumer at stale.litmus:4", "needs a and finds b"):
        assert words in out
    assert "repair" not in out


def test_check_tells_stalls(run):
    """A clean run whose host waits for its own step."""
    loc, mark = ["loop.py", 3, "step"], {"step": 1}
    records = [
        {"record": "host_access", "writes": [[0, 8]]},
        {"record": "alloc", "span": [0, 8], "name": "P", "kind": "pinned", "buffer": "P"},
        {
            "record": "device_op",
            "stream": "s",
            "node": {"kind": "h2d", "reads": [[0, 8]], "writes": [[64, 72]]},
        },
        {"record": "acquire", "scope": "stream", "target": "s"},
        {"record": "host_access", "writes": [[0, 8]]},
        {"record": "device_op", "stream": "s", "node": {"kind": "kernel", "reads": [[64, 72]]}},
        {"record": "event_record", "event": "e", "stream": "s"},
    ]
    lines = [
        {"format": "racecheck-trace/1"},
        *({"thread": "main", "loc": loc, "mark": mark, **x} for x in records),
    ]
    Path("t.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    code, out, _ = run("check", "t.jsonl")
    assert code == 0
    assert out.startswith(
        "stall: stream sync at loop.py:3, 1 time: waits for the h2d copy at loop.py:3, of the same"
    )
    (stall,) = json.loads(run("check", "--json", "t.jsonl")[1])["evidence"]["stalls"]
    assert (stall["count"], stall["allows_rewriting"]) == (1, ["P"])


def test_syncs_of_a_faulty_program_says_so(run):
    """Its waits are judged against the races that are there anyway."""
    assert "The verdict as it is: race." in run("syncs", "race.litmus")[1]
    assert "verdict as it is" not in run("syncs", "safe.litmus")[1]
