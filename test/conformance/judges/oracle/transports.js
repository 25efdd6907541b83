// One request over each transport. An answer has the same fields as that of the
// reference: refused, stream, data and errors. If first is set, the protocol sends only
// the first error.
import { WebSocket } from 'ws'

export function requestBody({ query, variables, operationName }) {
  const parts = [`"query":${JSON.stringify(query)}`]
  if (variables !== undefined) parts.push(`"variables":${variables}`) // as text, because 1.0 must remain 1.0
  if (operationName !== undefined) parts.push(`"operationName":${JSON.stringify(operationName)}`)
  return `{${parts.join(',')}}`
}

// result returns data as text, so that the order of keys is compared, too.
function result(text) {
  const { data, errors = [] } = JSON.parse(text)
  if (data === undefined) return { refused: true, errors }
  const end = errors.length > 0 ? text.indexOf(',"errors":[', 8 + JSON.stringify(data).length) : text.length - 1
  return { data: text.slice('{"data":'.length, end), errors }
}

export const http = {
  name: 'HTTP',
  async open(url) {
    return {
      async answer(request) {
        const response = await fetch(url, {
          method: 'POST', body: requestBody(request),
          headers: { 'content-type': 'application/json', accept: 'application/graphql-response+json' },
        })
        const text = await response.text()
        switch (response.status) {
          case 200: return result(text)
          case 400: return { refused: true, errors: JSON.parse(text).errors }
          case 406: return { stream: true, unread: true } // a valid subscription, which needs another transport
          default: return { status: response.status, text }
        }
      },
      close() {},
    }
  },
}

const patience = 20_000 // milliseconds; a stream that should have been refused sends no message

// The two protocols differ only in their message types.
const words = {
  'graphql-ws': { start: 'start', stop: 'stop', data: 'data' },
  'graphql-transport-ws': { start: 'subscribe', stop: 'complete', data: 'next' },
}

function socket(protocol) {
  const word = words[protocol]
  return {
    name: protocol,
    async open(url) {
      const socket = new WebSocket(url.replace(/^http/, 'ws'), protocol)
      const waiting = new Map()
      let ended // the error after which there are no more answers
      const failed = (err) => {
        ended = err
        for (const { reject } of waiting.values()) reject(err)
      }
      await new Promise((resolve, reject) => {
        socket.on('open', () => socket.send('{"type":"connection_init"}'))
        socket.on('error', reject)
        socket.on('close', (code, reason) => failed(new Error(`${protocol} closed with ${code} ${reason}`)))
        socket.on('message', (bytes) => {
          const text = String(bytes)
          const { type, id, payload } = JSON.parse(text)
          if (type === 'connection_ack') resolve()
          if (type === 'pong') waiting.get(payload.id)?.resolve({ stream: true })
          if (id === undefined) return
          const one = waiting.get(id)
          if (!one) return failed(new Error(`a frame with an unknown id: ${text}`))
          if (type === word.data) {
            one.data = result(text.slice(text.indexOf('"payload":') + '"payload":'.length, -1))
            return
          }
          waiting.delete(id)
          if (type === 'error') one.resolve({ refused: true, errors: [payload].flat(), first: protocol === 'graphql-ws' })
          else if (type === 'complete') one.resolve(one.data ?? { stream: true })
          else one.reject(new Error(`an unexpected frame: ${text}`))
        })
      })
      let number = 0
      return {
        // answer ends a stream immediately after it has started it.
        async answer(request, isStream) {
          if (ended) throw ended
          const id = String(++number)
          const answered = new Promise((resolve, reject) => waiting.set(id, { resolve, reject }))
          const late = setTimeout(() => waiting.get(id)?.resolve({ late: true }), patience)
          socket.send(`{"id":"${id}","type":"${word.start}","payload":${requestBody(request)}}`)
          if (isStream) {
            socket.send(`{"id":"${id}","type":"${word.stop}"}`)
            // In this protocol the server does not confirm that a client has ended a stream.
            if (protocol === 'graphql-transport-ws') socket.send(`{"type":"ping","payload":{"id":"${id}"}}`)
          }
          return answered.finally(() => clearTimeout(late))
        },
        close() {
          socket.close()
        },
      }
    },
  }
}

export const legacy = socket('graphql-ws')
export const modern = socket('graphql-transport-ws')
