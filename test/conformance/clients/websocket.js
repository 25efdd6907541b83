// The WebSocket that clients are given: ws's, with an ear on it.
import WebSocket from 'ws'

// overheard makes sockets whose frames are kept, those of both sides, as they
// were sent and came.
export function overheard(frames) {
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
