"""Lineage: which datasets a query reads and writes, told as events of OpenLineage; see docs/LINEAGE.md.

It needs openlineage-python on the driver: pip install 'streamsink[openlineage]'.
"""

from streamsink.lineage.listener import OpenLineage

__all__ = ["OpenLineage"]
