// The live blocks, over as many connections as it takes: each goes on behind the
// last block of the one before.
import { data } from './api.js'
import { closing } from './closing.js'
import { line } from './line.js'

const fields = 'id: hash seq_no workchain_id shard gen_utime chain_order'
const newest = `query newest($last: Int) { info { time } blockchain { blocks(last: $last) { edges { node { ${fields} } } } } }`
const live = `subscription live($after: String) { blocks(after: $after) { ${fields.replace('id: hash', 'id')} } }`

const stored = 50 // blocks to begin with
const silence = 5000 // after which it is asked whether the chain stands still
const slowest = 10_000 // between two attempts

export class Stream {
  cursor = undefined // of the last block
  time = 0 // of the last block, seconds
  ahead = 0 // how much the server's clock is ahead, milliseconds
  attempts = 0
  leaving = new AbortController()

  // told gets block(block, how), state(name, detail), rewind(cursor) and restart(why).
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

  // connection brings blocks until it ends, and is why it did.
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
        target = undefined // as far as the chain had come
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
          this.restarted().then((why) => why && end({ restart: why }), () => {}) // if the line is lost, it will tell
        }, silence)
      }
      const leave = () => end({})
      const end = (why) => {
        clearTimeout(watch)
        this.leaving.signal.removeEventListener('abort', leave)
        resolve(why)
        stop()
        client.dispose().catch(() => {}) // it never came about
      }
      this.leaving.signal.addEventListener('abort', leave)
      listen()
    })
  }

  // restarted is why a chain that is silent will not go on: it is another one by
  // now, whose blocks come below our cursor though they are younger.
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

  // pause waits, or until the browser has a network again.
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
