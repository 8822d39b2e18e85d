"""Two stages on two streams, chained by events, with results copied back to pinned memory. Plain PyTorch."""

import torch

ROUNDS, SIZE = 6, 64


def main(device="cuda"):
    """The last element of every round's result."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    source = torch.arange(SIZE, dtype=torch.float32, device=device)
    middle = [torch.empty(SIZE, device=device) for _ in range(2)]
    landed = [torch.empty(SIZE, pin_memory=True) for _ in range(2)]
    produced = [torch.cuda.Event() for _ in range(2)]
    consumed = [torch.cuda.Event() for _ in range(2)]
    first.wait_stream(torch.cuda.current_stream())
    out = []
    for round_ in range(ROUNDS):
        slot = round_ % 2
        if round_ >= 2:
            consumed[slot].synchronize()
            out.append(landed[slot][-1].item())
        with torch.cuda.stream(first):
            torch.add(source, round_, out=middle[slot])
            produced[slot].record()
        with torch.cuda.stream(second):
            second.wait_event(produced[slot])
            result = middle[slot] * 2
            landed[slot].copy_(result, non_blocking=True)
            consumed[slot].record()
        first.wait_event(consumed[slot])
    for round_ in range(ROUNDS, ROUNDS + 2):
        consumed[round_ % 2].synchronize()
        out.append(landed[round_ % 2][-1].item())
    return torch.tensor(out)


if __name__ == "__main__":
    print(main())
