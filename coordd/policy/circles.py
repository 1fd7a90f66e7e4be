"""Circles in a graph of dependencies: tasks that wait for each other can never begin."""

from collections.abc import Iterator, Mapping, Sequence


def circles(following: Mapping[str, Sequence[str]]) -> list[tuple[str, ...]]:
    """Every group of nodes that reach each other, sorted, and every node that names itself.

    Tarjan's algorithm without recursion, since a chain may be as long as the file. Edges to nodes that are not in the
    graph do not count.
    """
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: list[tuple[str, ...]] = []
    for root in following:
        if root in order:
            continue
        path: list[tuple[str, Iterator[str]]] = []
        entering: str | None = root
        while entering is not None or path:
            if entering is not None:
                order[entering] = low[entering] = len(order)
                stack.append(entering)
                on_stack.add(entering)
                path.append((entering, iter(following[entering])))
                entering = None
            name, targets = path[-1]
            for target in targets:
                if target not in order and target in following:
                    entering = target
                    break
                if target in on_stack:
                    low[name] = min(low[name], order[target])
            else:
                path.pop()
                if path:
                    above = path[-1][0]
                    low[above] = min(low[above], low[name])
                if low[name] == order[name]:
                    part = [stack.pop()]
                    while part[-1] != name:
                        part.append(stack.pop())
                    on_stack.difference_update(part)
                    if len(part) > 1 or name in following[name]:
                        found.append(tuple(sorted(part)))
    return found
