// A stream of live blocks that reconnects if necessary. Each connection continues after
// the last block of the previous connection.
import { data } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

const fields = 'id: hash seq_no workchain_id shard gen_utime chain_order'
const newest = `query newest($last: Int) { info { time } blockchain { blocks(last: $last) { edges { cursor node { ${fields} } } } } }`
const live = `subscription live($after: String) { blocks(after: $after) { cursor ${fields.replace('id: hash', 'id')} } }`

const stored = 50 // number of stored blocks at the beginning
const silence = 5000 // milliseconds without a block after which the stream checks for a restarted chain
const slowest = 10_000 // maximum time between two attempts, in milliseconds

export class Stream {
  cursor = undefined // of the last block; with its suffix, it compares with each chain_order like that of the block
  time = 0 // of the last block, seconds
  ahead = 0 // how much the server's clock is ahead, milliseconds
  attempts = 0
  leaving = new AbortController()

  // The methods of told are called: block(block, how), state(name, detail), rewind(cursor)
  // and restart(why).
  constructor(to, told) {
    Object.assign(this, { to, told })
  }

  async run() {
    const { signal } = this.leaving
    while (!signal.aborted) {
      this.told.state('connecting')
      const end = await this.connection().catch((err) => err)
      if (signal.aborted) return
      const { code } = end.extensions ?? {}
      if (code === 'UNAUTHENTICATED' || end.code === 4403) return this.told.state('refused', closing({ code: 4403 }).message)
      if (code === 'STREAM_GAP') this.rewind(end.extensions.cursor)
      else if (code === 'EPOCH_CHANGED') this.restart('The chain was replaced.')
      else if (code === 'CURSOR_TOO_OLD') this.restart('The blocks since the line was lost are no longer kept.')
      else if (end.restart) this.restart(end.restart)
      else this.told.state('lost', end.message)
      await this.pause(Math.min(250 * 2 ** this.attempts++, slowest) * (0.75 + Math.random() / 2))
    }
  }

  // connection receives blocks until the connection ends, and returns the reason.
  async connection() {
    const began = this.cursor
    const sent = Date.now()
    const { info, blockchain } = await data(this.to, newest, { last: began === undefined ? stored : 1 }, this.leaving.signal)
    if (this.leaving.signal.aborted) return {}
    this.ahead = info.time - (sent + Date.now()) / 2
    const blocks = blockchain.blocks.edges.map(({ cursor, node }) => ({ ...node, cursor }))
    const target = blocks.at(-1)?.chain_order ?? ''
    if (began === undefined) {
      this.cursor = ''
      for (const block of blocks) this.take(block, 'stored')
    }
    return this.subscription(target, began !== undefined)
  }

  subscription(target, resumed) {
    return new Promise((resolve) => {
      let caught = 0
      let watch
      const client = line(this.to, () => current())
      const current = () => {
        if (target === undefined) return
        if (this.cursor < target) return this.told.state('behind')
        this.told.state('live', resumed ? caught : undefined)
        target = undefined // all blocks up to the start of this connection have arrived
      }
      const stop = client.subscribe({ query: live, variables: { after: this.cursor } }, {
        next: ({ data, errors }) => {
          if (errors) return end(errors[0])
          this.attempts = 0
          listen()
          const behind = target !== undefined && data.blocks.chain_order <= target
          if (behind) caught++
          this.take(data.blocks, behind ? 'caught' : 'live')
          current()
        },
        error: (err) => end(Array.isArray(err) ? err[0] : { ...closing(err), code: err.code }),
        complete: () => end({ message: 'The server has ended the stream.' }),
      })
      const listen = () => {
        clearTimeout(watch)
        watch = setTimeout(() => {
          listen()
          this.restarted().then((why) => why && end({ restart: why }), () => {}) // ignore an error: a lost connection is detected elsewhere
        }, silence)
      }
      const leave = () => end({})
      const end = (why) => {
        clearTimeout(watch)
        this.leaving.signal.removeEventListener('abort', leave)
        resolve(why)
        stop()
        client.dispose().catch(() => {}) // ignore that the connection was never established
      }
      this.leaving.signal.addEventListener('abort', leave)
      listen()
    })
  }

  // restarted returns a message if the chain has started again from its beginning. Its
  // newest block then has a lower cursor than the last received block, but a later time.
  async restarted() {
    const { blockchain } = await data(this.to, newest, { last: 1 }, this.leaving.signal)
    const node = blockchain.blocks.edges[0]?.node
    if (node && node.chain_order < this.cursor && node.gen_utime > this.time) return 'The chain has begun anew.'
  }

  take(block, how) {
    this.cursor = block.cursor
    this.time = block.gen_utime
    this.told.block(block, how, Date.now() + this.ahead)
  }

  // rewind drops the blocks after a cursor. It keeps the cursor even if there are none, because its suffix tells the
  // server which gap it has reported.
  rewind(cursor) {
    this.cursor = cursor
    this.told.rewind(cursor)
  }

  restart(why) {
    this.cursor = undefined
    this.told.restart(why)
  }

  // pause waits for the given time, or until the browser is online again.
  pause(time) {
    return new Promise((resolve) => {
      const go = () => {
        clearTimeout(timer)
        removeEventListener('online', go)
        this.leaving.signal.removeEventListener('abort', go)
        resolve()
      }
      const timer = setTimeout(go, time)
      addEventListener('online', go)
      this.leaving.signal.addEventListener('abort', go)
    })
  }

  close() {
    this.leaving.abort()
  }
}
