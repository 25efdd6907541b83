// A WebSocket class that records messages.
import WebSocket from 'ws'

// recordFrames returns a WebSocket class that appends the messages of client and
// server to frames, in their order.
export function recordFrames(frames) {
  return class extends WebSocket {
    constructor(...args) {
      super(...args)
      this.on('message', (data) => frames.push({ from: 'server', ...JSON.parse(data) }))
    }

    send(data, ...args) {
      frames.push({ from: 'client', ...JSON.parse(data) })
      super.send(data, ...args)
    }
  }
}
