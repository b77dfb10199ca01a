// Reads the outcome topic as docs/consuming.md says.  Usage: npm ci && node consumer.mjs READY_FILE [STATE_FILE].
import { randomUUID } from 'node:crypto'
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import kafkajs from 'kafkajs'

const IDLE_SECONDS = 20 // A service reads for ever; this example ends when nothing has come for so long.
const [READY, STATE] = process.argv.slice(2)
const where = JSON.parse(readFileSync(READY, 'utf8'))
const topic = where.outcome_topic
const empty = { lanes: {}, seen: {}, outcomes: {} }
// Stands for your own database: position, marks and effects change together, by the renaming of one file.
const store = STATE && existsSync(STATE) ? JSON.parse(readFileSync(STATE, 'utf8')) : empty
const save = () => {
  if (!STATE) return
  writeFileSync(`${STATE}.new`, JSON.stringify(store), { flush: true })
  renameSync(`${STATE}.new`, STATE)
}

const take = (number, message) => {
  const header = (name) => message.headers[name]?.toString()
  const lane = (store.lanes[number] ??= { nextOffset: '0', lastSequence: 0 })
  const sequence = Number(header('onceflow_sequence'))
  if (sequence > lane.lastSequence + 1) {
    console.error(`lane ${number}: ${lane.lastSequence + 1} to ${sequence - 1} LOST`)
  }
  lane.nextOffset = String(BigInt(message.offset) + 1n)
  lane.lastSequence = Math.max(lane.lastSequence, sequence)
  if (store.seen[header('ce_id')]) return // A refill of what was never lost here.
  store.seen[header('ce_id')] = true
  const withheld = header('onceflow_withheld')
  if (withheld !== undefined) {
    console.error(`lane ${number} sequence ${sequence} withheld: ${withheld}`)
    return
  }
  const id = header('onceflow_outcome_id')
  const revision = Number(header('onceflow_revision'))
  if (revision <= (store.outcomes[id]?.revision ?? 0)) return // A newer form of it is here already.
  store.outcomes[id] = { revision, key: header('ce_subject'), data: message.value.toString() }
  console.log(`${number} ${sequence} ${header('ce_type')} ${message.value}`)
}

// Errors only, as kafkajs writes the rest to standard output.
const kafka = new kafkajs.Kafka({ brokers: where.kafka_bootstrap.split(','), logLevel: kafkajs.logLevel.ERROR })
// kafkajs needs a group; the position is our own, so the group is a new one and nothing is committed to it.
const group = { groupId: `consumer.mjs.${randomUUID()}`, readUncommitted: false, maxWaitTimeInMs: 500 }
const consumer = kafka.consumer(group)
let lastAt = Infinity
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  lastAt = Date.now()
  for (const number of payload.memberAssignment[topic] ?? []) {
    const offset = store.lanes[number]?.nextOffset
    if (offset !== undefined) consumer.seek({ topic, partition: number, offset })
  }
})
consumer.on(consumer.events.CRASH, ({ payload }) => {
  console.error(String(payload.error))
  if (!payload.restart) process.exit(1)
})
await consumer.connect()
await consumer.subscribe({ topics: [topic], fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch, isStale }) => {
    if (isStale()) return // The batch was fetched before a seek.
    for (const message of batch.messages) take(batch.partition, message)
    save()
    lastAt = Date.now()
  },
})
const watch = setInterval(async () => {
  if (Date.now() - lastAt < IDLE_SECONDS * 1000) return
  clearInterval(watch)
  await consumer.disconnect()
}, 100)
