"""What a W&B run kept on the disk, read without W&B's reader: a LevelDB log of protocol buffers."""

import json
import struct

BLOCK, HEAD, FILE_HEAD = 32768, 7, 7


def records(folder):
    """The records of all starts in a run folder, in turn."""
    from wandb.proto.wandb_internal_pb2 import Record

    for path in sorted(
        folder.glob("wandb/offline-run-*/*.wandb"), key=lambda p: p.stat().st_mtime_ns
    ):
        for data in chunks(path.read_bytes()):
            yield Record.FromString(data)


def chunks(data):
    """The records of a log: a block of 32 KiB holds chunks (checksum, length, kind), 7 bytes ahead of each."""
    at, whole = FILE_HEAD, b""
    while at + HEAD <= len(data):
        left = BLOCK - at % BLOCK
        if left < HEAD:
            at += left
            continue
        _, length, kind = struct.unpack("<IHB", data[at : at + HEAD])
        at += HEAD
        whole += data[at : at + length]
        at += length
        if kind in (1, 4):  # a whole record, or the last part of one
            yield whole
            whole = b""


def history(folder):
    """The logged lines: name → value."""
    for record in records(folder):
        if record.WhichOneof("record_type") == "history":
            items = record.history.item
            yield {"/".join(i.nested_key) or i.key: json.loads(i.value_json) for i in items}


def runs(folder):
    """(id, project, name, configuration) of each start."""
    for record in records(folder):
        if record.WhichOneof("record_type") == "run":
            run = record.run
            config = {item.key: json.loads(item.value_json) for item in run.config.update}
            yield run.run_id, run.project, run.display_name, run.host, config


def summary(folder):
    """The last value of each number of the summary."""
    found = {}
    for record in records(folder):
        if record.WhichOneof("record_type") == "summary":
            for item in record.summary.update:
                found["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return found
