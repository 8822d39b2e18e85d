"""What this machine has, what can be seen of its GPU, and what each way of seeing misses."""

from __future__ import annotations

import platform
from collections.abc import Callable
from importlib import metadata
from typing import Any, NamedTuple

from racecheck.errors import RacecheckError

#: PyTorch versions that the hooks were tried with; others may have moved what they hang on.
TESTED_TORCH = ((2, 11), (2, 13))

SEES = {
    "cupti": "every copy, event, wait and graph launch of the process, those of C++ code (FlashInfer) too",
    "hooks": "what goes through torch.cuda and torch.Tensor; copies that C++ code makes itself are missed",
    "operators": "the bytes of every PyTorch operation, so that races on device memory are found; kernels "
    "launched past PyTorch are missed",
    "bytes": "host writes by anyone, in the stretch between two calls of the thread that stages; one of the "
    "very same bytes is missed",
    "exact": "host writes by anyone, by line and thread",
}


class Check(NamedTuple):
    """One line of the doctor's: `ok` is None for what only some uses need."""

    name: str
    ok: bool | None
    what: str
    remedy: str = ""


def examine() -> list[Check]:
    """Everything that matters here, the most general first."""
    return [
        Check("python", True, platform.python_version()),
        _torch(),
        _gpu(),
        _extra("cupti-python", "capture by CUPTI", _try_cupti),
        _extra("cuda-bindings", "gates that hold a stream", _import("cuda.bindings.driver")),
        _extra("flashinfer-python", "the FlashInfer backend", _import("flashinfer")),
        _extra("z3-solver", "racecheck prove", _import("z3"), "prove"),
        _exact(),
    ]


def captures(checks: list[Check]) -> list[tuple[str, bool, str]]:
    """The ways of seeing a GPU, best first: name, whether it can be had here, what it sees and misses."""
    known = {check.name: bool(check.ok) for check in checks}
    gpu = known["gpu"]
    had = {"cupti": gpu and known["cupti-python"], "exact": known["exact writes"]}
    return [(name, had.get(name, gpu), text) for name, text in SEES.items()]


def is_tested(version: str) -> bool:
    """Were the hooks tried with this PyTorch?"""
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2] if part.isdigit())
    return TESTED_TORCH[0] <= numbers <= TESTED_TORCH[1]


def _torch() -> Check:
    import torch

    version = str(torch.__version__)
    built = f"CUDA {torch.version.cuda}" if torch.version.cuda else "no CUDA"
    low, high = (".".join(map(str, numbers)) for numbers in TESTED_TORCH)
    remedy = "" if is_tested(version) else f"racecheck was tried with {low} to {high}: hooks may miss calls"
    return Check("torch", is_tested(version), f"{version}, built with {built}", remedy)


def _gpu() -> Check:
    import torch

    if not torch.cuda.is_available():
        return Check("gpu", None, "none that PyTorch can use", "the virtual device needs none")
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return Check("gpu", True, f"{names}; driver {_driver_version()}")


def _driver_version() -> str:
    try:
        with open("/proc/driver/nvidia/version", encoding="ascii") as file:
            words = file.readline().split()
    except OSError:
        return "unknown"
    return next((word for word in words if word[:1].isdigit() and "." in word), "unknown")


def _extra(package: str, use: str, attempt: Callable[[], Any], extra: str = "gpu") -> Check:
    try:
        version = metadata.version(package)
    except metadata.PackageNotFoundError:
        return Check(package, None, "not installed", f"for {use}: pip install 'racecheck[{extra}]'")
    try:
        attempt()
    except Exception as error:  # whatever a broken installation may raise
        return Check(package, False, version, " ".join(str(error).split()))
    return Check(package, True, version)


def _import(module: str) -> Callable[[], Any]:
    def attempt() -> Any:
        from importlib import import_module

        return import_module(module)

    return attempt


def _try_cupti() -> None:
    """Subscribe and let go: another subscriber, or a library of the wrong version, shows only so."""
    import torch

    from racecheck.cuda.cupti import calls_seen, load
    from racecheck.cuda.observer import Observer

    load()
    if torch.cuda.is_available():
        with calls_seen(Observer()):
            pass


def _exact() -> Check:
    from racecheck.exact.handler import require_support

    try:
        require_support("exact")
        return Check("exact writes", True, f"{platform.system()} on {platform.machine()}")
    except RacecheckError as error:
        return Check("exact writes", None, "not supported", str(error))
