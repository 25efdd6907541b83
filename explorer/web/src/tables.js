// Tables shows the newest blocks of each workchain.
import { nameOf, shown } from './plot.js'

const rows = 10

export class Tables {
  tables = new Map()

  constructor(place) {
    this.place = place
  }

  // add inserts a block at the top. lag is in seconds, or null if it is unknown.
  add(block, lag) {
    const body = this.tables.get(block.workchain_id) ?? this.table(block.workchain_id)
    const row = body.insertRow(0)
    row.dataset.cursor = block.chain_order
    const time = document.createElement('time')
    time.dateTime = new Date(block.gen_utime * 1000).toISOString()
    time.textContent = new Date(block.gen_utime * 1000).toLocaleTimeString()
    const hash = document.createElement('code')
    hash.textContent = `${block.id.slice(0, 10)}…`
    hash.title = block.id
    const shard = document.createElement('code')
    shard.textContent = block.shard.replace(/0+$/, '') || '0'
    shard.title = block.shard
    for (const content of [block.seq_no, shard, time, lag === null ? '' : shown(lag), hash]) row.insertCell().append(content)
    if (body.rows.length > rows) body.deleteRow(-1)
  }

  table(workchain) {
    const table = document.createElement('table')
    table.createCaption().textContent = nameOf(workchain)
    const head = table.createTHead().insertRow()
    for (const title of ['Number', 'Shard', 'Time', 'Lag', 'Hash']) {
      const cell = document.createElement('th')
      cell.scope = 'col'
      cell.textContent = title
      head.append(cell)
    }
    const body = table.createTBody()
    const after = [...this.tables.keys()].sort((a, b) => a - b).find((other) => other > workchain)
    this.place.insertBefore(table, this.tables.get(after)?.parentElement ?? null)
    this.tables.set(workchain, body)
    return body
  }

  rewind(cursor) {
    for (const body of this.tables.values()) {
      for (const row of [...body.rows]) if (row.dataset.cursor > cursor) row.remove()
    }
  }

  clear() {
    this.tables.clear()
    this.place.replaceChildren()
  }
}
