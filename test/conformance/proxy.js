// A TCP proxy between a client and a server, which can cut, hold and slow down
// connections.
import { connect, createServer } from 'node:net'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

// slowly yields the data of a stream at 500 bytes per second.
async function* slowly(stream) {
  for await (const chunk of stream) {
    for (let i = 0; i < chunk.length; i += 50) {
      yield chunk.subarray(i, i + 50)
      await sleep(100)
    }
  }
}

// proxy starts a proxy in front of a server. Each of its functions that takes a regular expression applies it to
// the first data of a client.
export async function proxy({ address }) {
  let target = address
  const lines = new Set()
  let held = /(?!)/ // no client
  let holding // is called when a client is held
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
      end.on('error', () => {}) // the connection was cut
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
    // place returns the URLs of a server through the proxy.
    place: ({ url, socket }) => ({ url: url.replace(address, here), socket: socket.replace(address, here) }),
    // turn connects new clients to another server.
    turn: ({ address }) => (target = address),
    // hold stops forwarding data on all open connections, and on new connections whose first data matches begins. It
    // keeps these connections open.
    hold(begins = /^/) {
      held = begins
      for (const end of lines) end.unpipe().pause()
    },
    // caught waits until a new connection is held.
    caught: () => new Promise((resolve) => (holding = resolve)),
    // free forwards the data of new connections again.
    free: () => (held = /(?!)/),
    // slow slows down the data to new clients whose first data matches begins.
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
