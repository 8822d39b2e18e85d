"""`racecheck fuzz` and `racecheck replay`, on a small engine of somebody else's."""

from __future__ import annotations

import re
import threading
from pathlib import Path

import pytest
from samples import SCENARIO, write_scenario

from racecheck import cli

#: With two requests it does not wait before it rewrites a staged row, and two slots are too few.
TOY = """\
import torch


class Toy:
    def __init__(self, settings):
        self.rows = [torch.zeros(4, pin_memory=True) for _ in range(settings.slots.get("main", 1))]
        self.device = torch.zeros(4, device="cuda")

    def run(self, requests, steps, on_step):
        for step in range(min(steps, sum(request.new_tokens for request in requests))):
            if len(requests) < WRONG_FROM:
                torch.cuda.synchronize()
            row = self.rows[step % len(self.rows)]
            row.fill_(step)
            self.device.copy_(row, non_blocking=True)
            on_step(step)
        torch.cuda.synchronize()
        return {request.id: [(1,)] for request in requests}


def build(settings):
    return Toy(settings)
"""


@pytest.fixture
def fuzz(tmp_path, monkeypatch, capsys):
    """Run a command on the toy in its own folder: exit code, stdout, stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))

    def call(*arguments, wrong_from=2):
        module = f"toy_{wrong_from}"
        text = SCENARIO.replace('model = "qwen3-tts"', f'model = "toy"\nengine = "{module}:build"')
        write_scenario(tmp_path, text.replace("[workload]", "[workload]\nvocab = 64"))
        (tmp_path / f"{module}.py").write_text(TOY.replace("WRONG_FROM", str(wrong_from)))
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_finding_with_its_token_and_program(fuzz):
    """Two requests and three steps, one of them more than there are slots; the token replays it."""
    code, out, _ = fuzz("fuzz", "small.toml", "--examples", "10")
    assert code == 1
    assert "1 of 1 shards" in out
    assert "2 requests, 3 steps, no delays" in out
    assert "sequence = StepSequence(" in out
    token = re.search(r"racecheck replay (s1\.\S+)", out)[1]
    again, told, _ = fuzz("replay", token)
    assert again == 1
    assert told.split("\n\n")[1] in out
    assert fuzz("replay", token, "--program")[1].strip() in re.sub(r"(?m)^    ", "", out)


def test_workers_come_to_the_same_and_a_campaign_goes_on(fuzz):
    """The files of all shards are the same; a shard that is missing is searched, the others are not."""
    before = set(threading.enumerate())

    def shards(folder):
        return {path.name: path.read_text() for path in sorted(Path(folder).rglob("shard-*.json"))}

    fuzz("fuzz", "small.toml", "--examples", "26", "--folder", "here", "--database", "one")
    fuzz("fuzz", "small.toml", "--examples", "26", "--folder", "there", "--database", "two", "-n", "2")
    assert len(shards("here")) == 2
    assert shards("here") == shards("there")
    next(Path("here").rglob("shard-000001.json")).unlink()
    _, out, _ = fuzz("fuzz", "small.toml", "--examples", "26", "--folder", "here", "--database", "one")
    assert "2 of 2 shards (1 from before)" in out
    assert shards("here") == shards("there")
    left = {thread.name for thread in threading.enumerate() if thread not in before}
    assert not left  # a thread of a plugin would keep the virtual scheduler from knowing who can run


def test_no_finding(fuzz):
    """Exit code 0 with the evidence; a campaign without time says what it did not come to."""
    code, out, _ = fuzz("fuzz", "small.toml", "--examples", "10", wrong_from=99)
    assert (code, out.splitlines()[-1]) == (0, "no finding")
    assert re.search(r"pinned memory of 16 bytes +[1-9]\d* rewrites", out)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fuzz", "none.toml"), "none.toml"),
        (("fuzz", "small.toml", "--fault", "captured-copy"), "another engine than racecheck's own"),
        (("fuzz", "small.toml", "--runner", "eager"), "--runner eager"),
        (("fuzz", "small.toml", "--database", "github:nobody"), "write github:OWNER/REPOSITORY"),
        (("fuzz", "small.toml", "--examples", "0"), "--examples"),
        (("replay", "s1.nothing"), "paste it whole"),
        (("replay", "s1.nothing", "--device", "tpu"), "write virtual or cuda"),
    ],
)
def test_a_mistake_is_one_line(fuzz, arguments, said):
    """Cause and remedy, and exit code 2."""
    code, out, err = fuzz(*arguments)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_an_interrupted_campaign_says_how_far_it_is(fuzz, monkeypatch):
    """One line; the same command goes on."""

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("racecheck.commands.fuzz._search", interrupted)
    code, out, err = fuzz("fuzz", "small.toml", "--examples", "60")
    assert (code, out) == (130, "")
    assert err == "interrupted after 0 of 3 shards; the same command goes on\n"


def test_a_log_has_progress_and_git_no_folder(fuzz, tmp_path):
    """Shards are told when as many again are done; results are ignored by git."""
    _, _, err = fuzz("fuzz", "small.toml", "--examples", "60")
    assert [line.partition(": ")[2] for line in err.splitlines()] == [
        "1 of 3 shards done",
        "2 of 3 shards done",
    ]
    assert (tmp_path / ".racecheck" / ".gitignore").read_text() == "*\n"


def test_a_stall_is_not_searched_for(fuzz):
    """Its runs are clean: a search would look as if it had missed it."""
    code, _, err = fuzz("fuzz", "small.toml", "--fault", "ring-laps")
    assert (code, "is a stall, which is no finding" in err) == (2, True)
