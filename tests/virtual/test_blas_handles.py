"""When a thread's first matrix product fails, and when it must not."""

from __future__ import annotations

import threading
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import torch.nn.functional as F

import racecheck
from racecheck.virtual.backend import pinning_of_cuda

PRODUCTS = {
    "mm": lambda a, x: a @ a,
    "mv": lambda a, x: torch.mv(a, x),
    "vector": lambda a, x: a @ x,
    "linear": lambda a, x: F.linear(a, a, x),
    "einsum": lambda a, x: torch.einsum("ij,jk->ik", a, a),
    "cdist": lambda a, x: torch.cdist(a.repeat(4, 1), a.repeat(4, 1)),
}
NO_PRODUCTS = {
    "no rows": lambda a, x: a[:0] @ a,
    "no columns": lambda a, x: a[:, :0] @ a[:0],
    "attention": lambda a, x: F.scaled_dot_product_attention(a[None, None], a[None, None], a[None, None]),
    "outer": lambda a, x: torch.outer(x, x),
}


def captured(call, mode="thread_local", before=None):
    """The error of capturing `call` in a thread of its own, which has run `before`; None if there is none."""
    a, x = torch.eye(8, device="cuda"), torch.ones(8, device="cuda")

    def work():
        if before is not None:
            before(a, x)
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode=mode):
                call(a, x)
        except RuntimeError as error:
            return str(error.__context__ or error)
        return None

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.mark.parametrize("name", PRODUCTS)
def test_the_first_product_makes_a_handle(name):
    """In a capture that fails; one of any kind before it is enough."""
    call = PRODUCTS[name]
    with racecheck.virtual_cuda():
        assert "cublasCreate" in captured(call)
    with racecheck.virtual_cuda():
        assert captured(PRODUCTS["mm"], before=call) is None


@pytest.mark.parametrize("name", NO_PRODUCTS)
def test_what_needs_no_handle(name):
    """It may be captured, and is no warm-up for what needs one."""
    call = NO_PRODUCTS[name]
    with racecheck.virtual_cuda():
        assert captured(call) is None
    with racecheck.virtual_cuda():
        assert "cublasCreate" in captured(PRODUCTS["mm"], before=call)


def test_a_wrong_product_is_told_as_one():
    """Its own complaint, and it makes no handle."""
    with racecheck.virtual_cuda():
        assert "shapes" in captured(lambda a, x: a @ a[:3])


def test_an_ended_thread_leaves_its_handle():
    """The next one takes it."""
    with racecheck.virtual_cuda():
        with ThreadPoolExecutor(1) as pool:
            pool.submit(lambda: torch.eye(2, device="cuda") @ torch.eye(2, device="cuda")).result()
        assert captured(PRODUCTS["mm"]) is None


@pytest.mark.parametrize(("mode", "fails"), [("global", True), ("thread_local", False)])
def test_another_thread_s_first_product(mode, fails):
    """A global capture forbids it to everybody; it is invalid then."""
    with racecheck.virtual_cuda():
        a, errors = torch.eye(2, device="cuda"), []

        def product():
            try:
                torch.mm(a, a)
            except RuntimeError as error:
                errors.append(str(error))

        def capture():
            with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode=mode):
                a.add_(1)
                thread = threading.Thread(target=product)
                thread.start()
                thread.join()

        if fails:
            with pytest.raises(RuntimeError, match="previous error during capture"):
                capture()
            assert "cublasCreate" in errors[0]
        else:
            capture()
            assert errors == []


def test_pinning_of_a_cuda_build_says_nothing():
    """To name a device is deprecated: no warning of it reaches the program, which named none."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pinning_of_cuda("is_pinned")(torch.zeros(3)) is False
