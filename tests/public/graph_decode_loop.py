"""A decode loop: one captured step, tokens staged through a pinned row, greedy sampling. Plain PyTorch."""

import torch
import torch.nn.functional as F

VOCAB, HIDDEN, BATCH, STEPS = 32, 16, 4, 10


def main(device="cuda"):
    """Token ids, one row a step."""
    generator = torch.Generator().manual_seed(0)
    embedding = torch.randn(VOCAB, HIDDEN, generator=generator).to(device)
    head = torch.randn(HIDDEN, VOCAB, generator=generator).to(device)
    token = torch.zeros(BATCH, dtype=torch.int64, device=device)
    position = torch.zeros((), dtype=torch.int64, device=device)
    row = torch.empty(BATCH, dtype=torch.int64, pin_memory=True)
    result = torch.empty(BATCH, dtype=torch.int64, pin_memory=True)

    def step():
        hidden = F.silu(embedding[token] + position)
        token.copy_((hidden @ head).argmax(-1))
        position.add_(1)

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        step()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        step()
    tokens = []
    with torch.cuda.stream(stream):
        row.copy_(torch.arange(BATCH))
        token.copy_(row, non_blocking=True)
        position.zero_()
        for _ in range(STEPS):
            graph.replay()
            result.copy_(token, non_blocking=True)
            done = stream.record_event()
            done.synchronize()
            tokens.append(result.tolist())
    return torch.tensor(tokens)


if __name__ == "__main__":
    print(main())
