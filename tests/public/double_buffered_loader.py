"""Load batches through two pinned buffers while the previous batch is being used. Plain PyTorch."""

import torch

BATCH, FEATURES, BATCHES = 16, 32, 8


def batches():
    """Batches as they come from a disk or a network: ordinary CPU tensors."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(BATCHES):
        yield torch.randn(BATCH, FEATURES, generator=generator)


def main(device="cuda"):
    """Mean activation of every batch, computed behind the copies."""
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    staging = [torch.empty(BATCH, FEATURES, pin_memory=True) for _ in range(2)]
    inputs = [torch.empty(BATCH, FEATURES, device=device) for _ in range(2)]
    copied = [torch.cuda.Event() for _ in range(2)]
    used = [torch.cuda.Event() for _ in range(2)]
    weight = torch.ones(FEATURES, 4, device=device) / FEATURES
    copy.wait_stream(compute)
    means = []
    for index, batch in enumerate(batches()):
        slot = index % 2
        copied[slot].synchronize()  # the buffer's last copy has read it
        staging[slot].copy_(batch)
        with torch.cuda.stream(copy):
            copy.wait_event(used[slot])  # the batch before it in this slot has been used
            inputs[slot].copy_(staging[slot], non_blocking=True)
            copied[slot].record()
        compute.wait_event(copied[slot])
        means.append((inputs[slot] @ weight).relu().mean())
        used[slot].record()
    return torch.stack(means).cpu()


if __name__ == "__main__":
    print(main())
