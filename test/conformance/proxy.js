// A line that can be cut: a TCP proxy between a client and the main program.
import { connect, createServer } from 'node:net'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

// slowly is what a stream brings, at 500 bytes a second.
async function* slowly(stream) {
  for await (const chunk of stream) {
    for (let i = 0; i < chunk.length; i += 50) {
      yield chunk.subarray(i, i + 50)
      await sleep(100)
    }
  }
}

export async function proxy({ address }) {
  let target = address
  const lines = new Set()
  let held = /(?!)/ // nobody
  let holding // is told of whoever is held
  let slowed = /(?!)/
  const server = createServer((client) => {
    const [host, port] = target.split(':')
    const upstream = connect(Number(port), host)
    client.once('data', (first) => {
      if (held.test(first)) return holding?.()
      upstream.write(first)
      client.pipe(upstream)
      const back = slowed.test(first) ? Readable.from(slowly(upstream)).on('error', () => {}) : upstream
      back.pipe(client)
    })
    for (const end of [client, upstream]) {
      lines.add(end)
      end.on('error', () => {}) // it was cut
      end.on('close', () => {
        lines.delete(end)
        client.destroy()
        upstream.destroy()
      })
    }
  })
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve))
  server.unref()
  const here = `127.0.0.1:${server.address().port}`
  return {
    // place is where a server is found through the proxy.
    place: ({ url, socket }) => ({ url: url.replace(address, here), socket: socket.replace(address, here) }),
    // turn leads who comes from now on to another server.
    turn: ({ address }) => (target = address),
    // hold lets nothing more through, nor of who comes and begins so, and says so
    // to nobody.
    hold(begins = /^/) {
      held = begins
      for (const end of lines) end.unpipe().pause()
    },
    // caught waits for somebody who is held as he comes.
    caught: () => new Promise((resolve) => (holding = resolve)),
    // free lets through who comes from now on.
    free: () => (held = /(?!)/),
    // slow is slow with what is for those who come from now on and begin so.
    slow: (begins) => (slowed = begins),
    cut() {
      for (const end of lines) end.resetAndDestroy()
    },
    close() {
      server.close()
      this.cut()
    },
  }
}
