// A typed client of a chaingql service: balances, and live blocks that go on where
// they were when the line is lost. For browsers and for Node.
import { createClient, type Client } from 'graphql-ws'
import {
  BalanceDocument, BlocksDocument, NewestDocument,
  type BlockFilter, type BlockFragment, type BlocksSubscription, type TypedDocumentString,
} from './generated.js'

export type { BlockFilter } from './generated.js'

/** A block. Its chain_order is the cursor to go on from. */
export type Block = BlockFragment & { chain_order: string }

/** What the service answered instead. */
export class Refused extends Error {
  /**
   * STREAM_GAP, where blocks are missing from what was given: go on from cursor, and
   * forget what came from behind it. CURSOR_TOO_OLD, where the service has dropped
   * blocks that were not given yet: go on from "", knowing that they are lost.
   * Others tell what is wrong with the request.
   */
  readonly code: string | undefined
  /** What a stream had come to, where that is told. */
  readonly cursor: string | undefined

  constructor([first]: readonly GraphQLError[]) {
    super(first?.message ?? 'Refused')
    this.code = first?.extensions?.code
    this.cursor = first?.extensions?.cursor
  }
}

interface GraphQLError {
  message: string
  extensions?: { code?: string; cursor?: string }
}

export interface Access {
  /** Where the service is: "https://chain.example". */
  service: string
  project: string
  /** The project's secret, if it has one. */
  secret?: string | undefined
  /** For how long nothing may come before a line counts as lost: twice that many milliseconds. Default: 15,000. */
  patience?: number
  /** Where there is no global WebSocket, as in Node before 22: the package ws. */
  webSocket?: unknown
}

/** Asks a service for one of its projects. */
export class Chain {
  readonly #url: string
  readonly #authorization: Record<string, string>
  readonly #socket: Client

  constructor({ service, project, secret, patience = 15_000, webSocket }: Access) {
    this.#url = `${service.replace(/\/$/, '')}/${project}/graphql`
    this.#authorization = secret === undefined ? {} : { Authorization: `Basic ${btoa(`:${secret}`)}` }
    let late: ReturnType<typeof setTimeout> | undefined
    const content = () => {
      clearTimeout(late)
      late = undefined
    }
    const expect = () => {
      content()
      late = setTimeout(() => this.#socket.terminate(), patience)
    }
    this.#socket = createClient({
      url: this.#url.replace(/^http/, 'ws'),
      connectionParams: this.#authorization, // browsers cannot set headers on a socket
      webSocketImpl: webSocket,
      retryAttempts: 0, // it would ask for the same cursor again; blocks() knows better
      connectionAckWaitTimeout: patience,
      keepAlive: patience,
      on: {
        // A line that was lost in silence shows by a ping behind which nothing comes. On
        // a slow one the answer is long behind what else is on its way.
        ping: (received) => {
          if (!received) expect()
        },
        message: () => {
          if (late !== undefined) expect()
        },
        pong: (received) => {
          if (received) content()
        },
        closed: content,
      },
    })
  }

  /** What an account has, in nano-units; 0 where the chain has never seen it. */
  async balance(address: string): Promise<bigint> {
    const { blockchain } = await this.#query(BalanceDocument, { address })
    return BigInt(given(blockchain?.account?.info?.balance))
  }

  /** The cursor of the newest block: from there on blocks() gives what is new. */
  async newest(): Promise<string> {
    const { blockchain } = await this.#query(NewestDocument, {})
    return given(blockchain?.blocks?.pageInfo.endCursor)
  }

  /**
   * Each block behind the cursor after that matches the filter, first those that are
   * there, then each new one: in order, none left out and none twice, however often
   * the line or the service is lost in between. From "" on: all that the service keeps.
   *
   * It ends when the caller breaks or the signal is aborted; it throws Refused, or
   * what else will not change by asking again.
   */
  async *blocks(after: string, filter?: BlockFilter, signal?: AbortSignal): AsyncGenerator<Block, void> {
    for (let failures = 0; !signal?.aborted; failures++) {
      const query = BlocksDocument.toString()
      const stream = this.#socket.iterate<BlocksSubscription>({ query, variables: { filter, after } })
      const stop = () => void stream.return?.()
      signal?.addEventListener('abort', stop)
      try {
        for await (const { data, errors } of stream) {
          if (signal?.aborted) return // of what had come already
          if (errors) throw errors
          const block = given(data?.blocks)
          const cursor = given(block.chain_order)
          if (cursor <= after) continue // graphql-ws itself asked again, behind a normal close
          after = cursor
          failures = 0
          yield { ...block, chain_order: cursor }
        }
      } catch (err) {
        after = goOn(err) ?? after
      } finally {
        signal?.removeEventListener('abort', stop)
      }
      await pause(failures, signal)
    }
  }

  async #query<R, V>(document: TypedDocumentString<R, V>, variables: V): Promise<R> {
    const response = await fetch(this.#url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', ...this.#authorization },
      body: JSON.stringify({ query: document.toString(), variables }),
      signal: AbortSignal.timeout(30_000),
    })
    if (!response.headers.get('Content-Type')?.includes('json')) throw new Error(`HTTP status ${response.status}`)
    const { data, errors } = await response.json()
    if (errors) throw new Refused(errors)
    return data
  }
}

/** The schema's fields are nullable, but null only beside an error. */
function given<T>(value: T | null | undefined): T {
  if (value == null) throw new Error('The service left out what it was asked for')
  return value
}

/** Close codes of a service that goes away or cannot be reached; the others are refusals. */
const lost = new Set([1000, 1001, 1005, 1006, 1012, 1013, 1014, 4408, 4499, 4504])

/** Tells a loss, and from which cursor to go on if it is told, from a refusal, which it throws. */
function goOn(err: unknown): string | undefined {
  if (Array.isArray(err)) {
    const refused = new Refused(err)
    if (refused.code !== 'SERVICE_UNAVAILABLE' && refused.code !== 'RATE_LIMITED') throw refused
    return refused.cursor // blocks that did not match are behind it, too
  }
  const { code, reason } = err as { code?: unknown; reason?: unknown }
  if (typeof code === 'number') {
    if (!lost.has(code)) throw new Error(`The connection was closed: ${code} ${reason}`)
  } else if (err instanceof Error) {
    throw err
  } // else a socket's error event, which says no more
  return undefined
}

/** Lets time pass before the next try: more each time, and not the same for all. */
function pause(failures: number, signal?: AbortSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve()
  const most = Math.min(100 * 2 ** failures, 30_000)
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer)
      signal?.removeEventListener('abort', wake)
      resolve()
    }
    const timer = setTimeout(wake, most / 2 + (Math.random() * most) / 2)
    signal?.addEventListener('abort', wake)
  })
}
