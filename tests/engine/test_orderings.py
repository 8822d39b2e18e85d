"""The engine under the detector: clean with evidence where it should be, and raced where it should be."""

import pytest

from racecheck import audit
from racecheck.engine import Engine
from racecheck.virtual import virtual_cuda

OUTER = {"kv.indices", "kv.indptr", "kv.write_slots", "position.ids", "talker_sampler.gather_indices"}
REGION = {"code_predictor_sampler.gather_indices"}
DECODER = {"kv.indices", "kv.indptr", "kv.write_slots", "position.ids", "sampler.gather_indices"}
SETTINGS = [(model, run_ahead) for model in ("qwen3-tts", "orpheus", "qwen3-omni") for run_ahead in (1, 2)]


def judge(make, config, model="qwen3-tts", *, lag="latest", count=14, parts=None, **settings):
    """Serve a workload under an audit: the audit, the tokens, and the engine."""
    with virtual_cuda(lag=lag):
        engine = Engine(config(model, **settings), parts)
        with audit() as verdict:
            tokens = engine.run(make(count, model=model))
    return verdict, tokens, engine


@pytest.mark.parametrize(("model", "run_ahead"), SETTINGS)
def test_enough_slots_are_clean(make, config, serve, model, run_ahead):
    """No race, host or device side; every staged buffer was rewritten, most while the host ran ahead; plans
    made ahead were promoted and dropped; the tokens are the serial ones.
    """
    verdict, tokens, engine = judge(make, config, model, run_ahead=run_ahead)
    assert verdict.verdict == "clean"
    unused = [name for name, figures in verdict.evidence.buffers.items() if not figures.rewrites]
    assert [name for name in unused if "prefill" not in name and "results" not in name] == []
    staged = [buffer for node in engine.model.nodes for one in node.resources for buffer in one.buffers]
    assert sum(verdict.evidence.buffers[buffer.name].open_windows for buffer in staged) > 20
    assert engine.worker.speculation.promoted > 5
    assert engine.worker.speculation.dropped > 1
    assert tokens == serve(make(14, model=model), model=model, run_ahead=0, lag="eager")


def raced(verdict):
    """Names of the staged host buffers in findings; a buffer and its device twins are one."""
    return {finding.buffer.removesuffix(" (device)") for finding in verdict.findings}


@pytest.mark.parametrize(
    ("model", "runner", "buffers", "lag"),
    [
        ("qwen3-tts", "main", OUTER | REGION | {"attention.talker.decode"}, "latest"),
        ("qwen3-tts", "piecewise", REGION, "latest"),
        ("qwen3-tts", "piecewise", REGION, "eager"),
        ("qwen3-tts", "eager", OUTER | {"attention.eager"}, "latest"),
        ("orpheus", "main", DECODER | {"attention.prefill", "attention.decode"}, "latest"),
        (
            "qwen3-omni",
            "piecewise",
            {"audio_attention.audio_blocks.cu_seqlens", "vision_attention.vision_blocks.cu_seqlens"},
            "eager",
        ),
    ],
)
def test_one_slot_races_on_the_runners_own_buffers(make, config, model, runner, buffers, lag):
    """One slot races on what that runner plans and nothing else, also when all tokens come out right."""
    verdict, _, _ = judge(make, config, model, lag=lag, count=20, slots={runner: 1})
    assert verdict.verdict == "race"
    assert raced(verdict) == buffers


@pytest.mark.parametrize("runner", ["piecewise", "eager"])
def test_one_slot_races_where_walks_are_moved(make, config, runner):
    """Walks that are captured graphs by themselves race in another runner as well."""
    walks = dict.fromkeys(("prefill", "decode"), runner)
    verdict, _, _ = judge(make, config, "orpheus", slots={runner: 1}, walks=walks)
    sampler = {"sampler.gather_indices"}
    assert raced(verdict) == (sampler if runner == "piecewise" else DECODER | {"attention.eager"})


@pytest.mark.parametrize("lag", ["latest", "eager", "seed:1"])
@pytest.mark.parametrize("model", ["qwen3-tts", "orpheus"])
def test_too_few_slots_for_the_run_ahead_race(make, config, serve, model, lag):
    """Two slots race at run-ahead two, however quick the result thread; a late device reads wrong plans."""
    verdict, tokens, _ = judge(make, config, model, lag=lag, run_ahead=2, slots=2)
    assert raced(verdict) >= (OUTER | REGION if model == "qwen3-tts" else DECODER)
    serial = serve(make(14, model=model), model=model, run_ahead=0, lag="eager")
    assert (tokens != serial) == (lag == "latest")


def test_unequal_slot_counts_meet(make, config):
    """Two and three slots over shared buffers: after some turns consecutive steps get the same slot."""
    verdict, _, _ = judge(make, config, count=24, slots={"main": 2, "piecewise": 3, "eager": 3})
    assert raced(verdict) & OUTER


def test_a_serial_engine_needs_one_slot(make, config, serve):
    """Nothing is planned before all is waited for."""
    verdict, tokens, _ = judge(make, config, run_ahead=0, slots=1)
    assert verdict.verdict == "clean"
    assert tokens == serve(make(14), run_ahead=0, slots=2, lag="eager")
