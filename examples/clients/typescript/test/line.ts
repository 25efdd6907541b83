// badLine is a TCP proxy between a client and a service. It cuts each connection after a
// random number of bytes, even inside a handshake or a block, or makes it go silent.
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

export async function badLine(target: string, least: number, most: number, silent = false) {
  const { hostname, port } = new URL(target)
  const open = new Set<Socket>()
  let losses = 0
  const server = createServer((client) => {
    const service = connect(Number(port), hostname)
    let left = Math.max(1, least + Math.floor(Math.random() * (most - least))) // with 0 bytes, the connection would be silent
    service.on('data', (data) => {
      if (left <= 0) return
      client.write(data.subarray(0, left))
      if ((left -= data.length) > 0) return
      losses++
      if (!silent) client.resetAndDestroy()
    })
    client.pipe(service)
    for (const end of [client, service]) {
      open.add(end)
      end.on('error', () => {}) // ignore the error of a cut connection
      end.on('close', () => {
        open.delete(end)
        client.destroy()
        service.destroy()
      })
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    losses: () => losses,
    close() {
      server.close()
      for (const end of open) end.destroy()
    },
  }
}

// slowLine is a TCP proxy that never cuts a connection, but limits the rate of the bytes
// from the service.
export async function slowLine(target: string, bytesPerSecond: number) {
  const { hostname, port } = new URL(target)
  const clients: Socket[] = []
  async function* slowly(service: AsyncIterable<Buffer>) {
    for await (const data of service) {
      for (let i = 0; i < data.length; i += bytesPerSecond / 10) {
        yield data.subarray(i, i + bytesPerSecond / 10)
        await sleep(100)
      }
    }
  }
  const server = createServer((client) => {
    const service = connect(Number(port), hostname)
    clients.push(client)
    for (const end of [client, service]) {
      end.on('error', () => {})
      end.on('close', () => {
        client.destroy()
        service.destroy()
      })
    }
    client.pipe(service)
    Readable.from(slowly(service)).on('error', () => {}).pipe(client)
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    lines: () => clients.length,
    close() {
      server.close()
      for (const client of clients) client.destroy()
    },
  }
}
