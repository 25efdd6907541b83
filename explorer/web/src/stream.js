// A stream of blocks. If a connection is lost, the stream connects again and continues
// after the last block that it received.
import { data } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

const fields = 'id: hash seq_no workchain_id shard gen_utime chain_order'
const newest = `query newest($last: Int) { info { time } blockchain { blocks(last: $last) { edges { node { ${fields} } } } } }`
const live = `subscription live($after: String) { blocks(after: $after) { ${fields.replace('id: hash', 'id')} } }`

const stored = 50 // number of stored blocks to show first
const silence = 5000 // milliseconds without a block after which the stream checks whether the chain was restarted
const slowest = 10_000 // maximum milliseconds between two attempts to connect

export class Stream {
  cursor = undefined // of the last block
  time = 0 // of the last block, in seconds
  ahead = 0 // server clock minus browser clock, in milliseconds
  attempts = 0
  leaving = new AbortController()

  // told receives the calls block(block, how), state(name, detail), rewind(cursor) and
  // restart(why).
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
      else if (code === 'CURSOR_TOO_OLD') this.restart('The blocks since the line was lost are no longer kept.')
      else if (end.restart) this.restart(end.restart)
      else this.told.state('lost', end.message)
      await this.pause(Math.min(250 * 2 ** this.attempts++, slowest) * (0.75 + Math.random() / 2))
    }
  }

  // connection passes blocks to told until the connection ends, and returns the reason
  // why it ended.
  async connection() {
    const began = this.cursor
    const sent = Date.now()
    const { info, blockchain } = await data(this.to, newest, { last: began === undefined ? stored : 1 }, this.leaving.signal)
    if (this.leaving.signal.aborted) return {}
    this.ahead = info.time - (sent + Date.now()) / 2
    const nodes = blockchain.blocks.edges.map(({ node }) => node)
    const target = nodes.at(-1)?.chain_order ?? ''
    if (began === undefined) {
      this.cursor = ''
      for (const node of nodes) this.take(node, 'stored')
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
        target = undefined // the stream has reached the block that was the newest when it connected
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
          this.restarted().then((why) => why && end({ restart: why }), () => {}) // ignore errors: a lost connection is detected elsewhere
        }, silence)
      }
      const leave = () => end({})
      const end = (why) => {
        clearTimeout(watch)
        this.leaving.signal.removeEventListener('abort', leave)
        resolve(why)
        stop()
        client.dispose().catch(() => {}) // ignore the error of a connection that was never established
      }
      this.leaving.signal.addEventListener('abort', leave)
      listen()
    })
  }

  // restarted returns a message if the chain was replaced with a new one. The newest block
  // of the new chain has a lower cursor than the last block of the stream, but a later time.
  // Such a stream would never continue.
  async restarted() {
    const { blockchain } = await data(this.to, newest, { last: 1 }, this.leaving.signal)
    const node = blockchain.blocks.edges[0]?.node
    if (node && node.chain_order < this.cursor && node.gen_utime > this.time) return 'The chain has begun anew.'
  }

  take(block, how) {
    this.cursor = block.chain_order
    this.time = block.gen_utime
    this.told.block(block, how, Date.now() + this.ahead)
  }

  rewind(cursor) {
    if (cursor >= this.cursor) return
    this.cursor = cursor
    this.told.rewind(cursor)
  }

  restart(why) {
    this.cursor = undefined
    this.told.restart(why)
  }

  // pause waits for the given time, but less if the browser goes online or the stream is
  // closed.
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
