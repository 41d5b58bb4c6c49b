"""Counts how often a micro-batch asks Spark's JVM."""

import threading
import traceback
from collections import Counter

from py4j.clientserver import ClientServerConnection

_GATEWAYS = "streamsink/spark/gateway"
# It looks now and then whether the queries of this process have ended, those of earlier tests too, and is no batch's.
_WATCHING = "streamsink-ended"


class Questions(Counter):
    """Questions by batch that the files of the gateway ask, whose names begin alike.
    The function for ``foreachBatch`` has to set ``batch``."""

    def __init__(self, monkeypatch):
        super().__init__()
        self.batch = 0
        ask = ClientServerConnection.send_command

        def counted(connection, command):
            ours = any(_GATEWAYS in frame.filename for frame in traceback.extract_stack())
            if ours and threading.current_thread().name != _WATCHING and not command.startswith("m\n"):
                self[self.batch] += 1
            return ask(connection, command)

        monkeypatch.setattr(ClientServerConnection, "send_command", counted)
