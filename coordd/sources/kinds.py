"""The kinds of sources there are."""

from coordd.config.settings import Source
from coordd.sources.base import WorkSource


def open_source(settings: Source) -> WorkSource:
    """The source a configuration names, watched from now on if it is to be. It reads nothing yet, and never fails."""
    if settings.kind == "beads":
        from coordd.sources.beads import BeadsSource

        return BeadsSource(settings)
    from coordd.sources.workplans import WorkplansSource

    return WorkplansSource(settings)
