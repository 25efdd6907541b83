// EventSource, as in browsers: it can only send GET requests, and when it
// reconnects it sends the id of the last received event as Last-Event-ID.
import { EventSource } from 'eventsource'
import { titled } from './package.js'
import { into, once } from './results.js'

function open({ url }, { credentials, fetch = globalThis.fetch }) {
  const all = new Set()
  function listen({ query, variables }, sink) {
    const parameters = new URLSearchParams({ query, variables: JSON.stringify(variables ?? {}) })
    const source = new EventSource(`${url}?${parameters}`, {
      fetch: (to, init) => fetch(to, { ...init, headers: { ...init.headers, ...credentials } }),
    })
    const leave = () => {
      source.close()
      all.delete(source)
    }
    const { next, error, complete } = into(sink)
    all.add(source)
    source.addEventListener('next', ({ data }) => next(JSON.parse(data)))
    source.addEventListener('complete', () => {
      leave() // it would reconnect otherwise
      complete()
    })
    source.addEventListener('error', (event) => {
      if (source.readyState === EventSource.CLOSED) error(event) // in other states it reconnects
    })
    return leave
  }
  return {
    listen,
    ask: (operation) => once((sink) => listen(operation, sink)),
    close: () => all.forEach((source) => source.close()),
  }
}

export const adapters = [{ name: titled('eventsource'), protocol: 'SSE', onCut: 'resumes', open }]
