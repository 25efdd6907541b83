// A line that can be cut: a TCP proxy between a client and the main program.
import { connect, createServer } from 'node:net'

export async function proxy({ address }) {
  const [host, port] = address.split(':')
  const lines = new Set()
  const server = createServer((client) => {
    const upstream = connect(Number(port), host)
    client.pipe(upstream).pipe(client)
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
    cut() {
      for (const end of lines) end.resetAndDestroy()
    },
    close() {
      server.close()
      this.cut()
    },
  }
}
