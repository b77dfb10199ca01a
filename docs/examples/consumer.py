"""Reads the outcome topic as docs/consuming.md says.  Usage: python consumer.py READY_FILE [STATE_FILE]."""

import json
import sqlite3
import sys
from pathlib import Path

from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

IDLE_SECONDS = 20  # A service reads for ever; this example ends when nothing has come for so long.
READY, STATE = [*sys.argv[1:], ":memory:"][:2]
where = json.loads(Path(READY).read_text("utf-8"))
store = sqlite3.connect(STATE)  # Stands for your own database: position, marks and effects change together.
store.execute("CREATE TABLE IF NOT EXISTS lane (number PRIMARY KEY, next_offset, last_sequence)")
store.execute("CREATE TABLE IF NOT EXISTS seen (ce_id PRIMARY KEY)")
store.execute("CREATE TABLE IF NOT EXISTS outcome (id PRIMARY KEY, revision, key, data)")
kafka = {"bootstrap.servers": where["kafka_bootstrap"], "isolation.level": "read_committed"}
consumer = Consumer({**kafka, "group.id": "not used", "enable.auto.commit": False, "auto.offset.reset": "error"})
lanes = consumer.list_topics(where["outcome_topic"], timeout=10).topics[where["outcome_topic"]].partitions
begin = {**dict.fromkeys(lanes, OFFSET_BEGINNING), **dict(store.execute("SELECT number, next_offset FROM lane"))}
consumer.assign([TopicPartition(where["outcome_topic"], lane, offset) for lane, offset in begin.items()])
while (message := consumer.poll(IDLE_SECONDS)) is not None:
    if message.error():
        raise SystemExit(str(message.error()))
    header = {name: value.decode() for name, value in message.headers()}
    lane, sequence = message.partition(), int(header["onceflow_sequence"])
    with store:  # One transaction for each record: all of this, or none.
        last = next(store.execute("SELECT last_sequence FROM lane WHERE number = ?", [lane]), (0,))[0]
        if sequence > last + 1:
            print(f"lane {lane}: {last + 1} to {sequence - 1} LOST", file=sys.stderr)
        position = (lane, message.offset() + 1, max(last, sequence))
        store.execute("INSERT OR REPLACE INTO lane VALUES (?, ?, ?)", position)
        if not store.execute("INSERT OR IGNORE INTO seen VALUES (?)", [header["ce_id"]]).rowcount:
            continue  # Seen before: a refill of what was never lost here.
        if "onceflow_withheld" in header:
            print(f"lane {lane} sequence {sequence} withheld: {header['onceflow_withheld']}", file=sys.stderr)
            continue
        row = (header["onceflow_outcome_id"], int(header["onceflow_revision"]), header["ce_subject"], message.value())
        keep_highest = "ON CONFLICT (id) DO UPDATE SET revision = ?2, data = ?4 WHERE revision < ?2"
        if store.execute(f"INSERT INTO outcome VALUES (?1, ?2, ?3, ?4) {keep_highest}", row).rowcount:  # noqa: S608
            print(lane, sequence, header["ce_type"], message.value().decode())
