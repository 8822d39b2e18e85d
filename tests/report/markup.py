"""HTML read back: the tree of a page, and its outline as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = ("meta", "input", "br", "link", "img")
#: Of a drawing only the items and arrows are structure.
SHAPES = ("rect", "path", "circle", "text", "tspan", "title", "marker", "defs")


@dataclass
class Node:
    """An element."""

    tag: str
    attributes: dict[str, str | None] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def walk(self) -> Iterator[Node]:
        """This element and all in it."""
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.walk()

    @property
    def text(self) -> str:
        """All text in it."""
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def outline(self, depth: int = 0) -> Iterator[str]:
        """A line for each element: tag, class, role, own text."""
        if self.tag in (*SHAPES, "head", "script"):
            return
        words = [self.tag]
        words += [f".{self.attributes['class']}"] if "class" in self.attributes else []
        words += [f"[{self.attributes['role']}]"] if "role" in self.attributes else []
        own = " ".join("".join(child for child in self.children if isinstance(child, str)).split())
        named = self.attributes.get("aria-label") if self.tag in ("g", "ul", "div") else None
        yield "  " * depth + " ".join(word for word in (*words, own, named) if word)
        for child in self.children:
            if isinstance(child, Node):
                yield from child.outline(depth + 1)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = Node("")
        self.open = [self.root]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, dict(attrs))
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_endtag(self, tag: str) -> None:
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        self.open[-1].children.append(data)


def parse(html: str) -> Node:
    """The tree of `html`, whose elements must all be closed in order."""
    reader = _Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == [reader.root]
    return reader.root
