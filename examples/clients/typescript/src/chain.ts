// A typed client of a chaingql service, for browsers and for Node. It reads balances and
// follows blocks. After a lost connection, it continues after the last received block.
import { createClient, type Client } from 'graphql-ws'
import {
  BalanceDocument, BlocksDocument, NewestDocument,
  type BlockFilter, type BlockFragment, type BlocksSubscription, type TypedDocumentString,
} from './generated.js'

export type { BlockFilter } from './generated.js'

/** A block. You can resume from its cursor. */
export type Block = BlockFragment & { cursor: string }

/** The error with which the service refused a request or ended a stream. */
export class Refused extends Error {
  /**
   * STREAM_GAP if blocks were missing before some blocks that you have received: discard
   * the blocks after cursor and resume from cursor. CURSOR_TOO_OLD if the service has
   * pruned blocks that you have not received: they are lost, so resume from "".
   * EPOCH_CHANGED if the chain was replaced: discard all blocks and cursors, and start
   * again without them, from "" or newest().
   * Other codes describe errors of the request.
   */
  readonly code: string | undefined
  /** The cursor to resume from, if the service sent one. */
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
  /** The URL of the service, for example "https://chain.example". */
  service: string
  project: string
  /** The project's secret, if it has one. */
  secret?: string | undefined
  /** A connection is considered lost if nothing arrives for twice this time, in milliseconds. Default: 15,000. */
  patience?: number
  /** A WebSocket class, if there is no global one. For Node before 22, use the package ws. */
  webSocket?: unknown
}

/** A client for one project of a service. */
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
      retryAttempts: 0, // graphql-ws would retry with the old cursor; blocks() resumes from the newest one
      connectionAckWaitTimeout: patience,
      keepAlive: patience,
      on: {
        // If nothing arrives after a ping, the connection was lost. On a slow connection,
        // other messages may delay the pong, so every message counts.
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

  /** The balance of an account in nano-units; 0 if the account does not exist. */
  async balance(address: string): Promise<bigint> {
    const { blockchain } = await this.#query(BalanceDocument, { address })
    return BigInt(given(blockchain?.account?.info?.balance))
  }

  /** The cursor of the newest block. With this cursor, blocks() yields only new blocks. */
  async newest(): Promise<string> {
    const { blockchain } = await this.#query(NewestDocument, {})
    return given(blockchain?.blocks?.pageInfo.endCursor)
  }

  /**
   * Yields each block after the cursor that matches the filter: first the existing blocks,
   * then new ones. It yields each block once and in order, even if the connection is lost
   * or the service restarts. If after is "", it starts with the oldest block that the
   * service keeps.
   *
   * It ends when the caller breaks the loop or aborts the signal. It throws Refused, or
   * another error that a retry would not fix.
   */
  async *blocks(after: string, filter?: BlockFilter, signal?: AbortSignal): AsyncGenerator<Block, void> {
    for (let failures = 0; !signal?.aborted; failures++) {
      const query = BlocksDocument.toString()
      const stream = this.#socket.iterate<BlocksSubscription>({ query, variables: { filter, after } })
      const stop = () => void stream.return?.()
      signal?.addEventListener('abort', stop)
      try {
        for await (const { data, errors } of stream) {
          if (signal?.aborted) return // ignore results that had already arrived
          if (errors) throw errors
          const block = given(data?.blocks)
          const cursor = given(block.cursor)
          if (cursor <= after) continue // graphql-ws itself has retried with the old cursor, after a normal close
          after = cursor
          failures = 0
          yield { ...block, cursor }
        }
      } catch (err) {
        const cursor = goOn(err)
        if (cursor !== undefined && cursor > after) after = cursor // it is older if graphql-ws itself has retried
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

/** Returns a value that is not null. Fields of the schema are nullable, but null only if there is an error. */
function given<T>(value: T | null | undefined): T {
  if (value == null) throw new Error('The response does not contain the requested fields')
  return value
}

/** Close codes of a service that shuts down or cannot be reached. All other codes mean that it refused the request. */
const lost = new Set([1000, 1001, 1005, 1006, 1012, 1013, 1014, 4408, 4499, 4504])

/** If the connection was lost, returns the cursor to resume from, if it is known. Otherwise it throws an error. */
function goOn(err: unknown): string | undefined {
  if (Array.isArray(err)) {
    const refused = new Refused(err)
    if (refused.code !== 'SERVICE_UNAVAILABLE' && refused.code !== 'RATE_LIMITED') throw refused
    return refused.cursor // this cursor may be after blocks that did not match
  }
  const { code, reason } = err as { code?: unknown; reason?: unknown }
  if (typeof code === 'number') {
    if (!lost.has(code)) throw new Error(`The connection was closed: ${code} ${reason}`)
  } else if (err instanceof Error) {
    throw err
  } // otherwise err is a WebSocket's error event, which has no details
  return undefined
}

/** Waits before the next attempt: exponential backoff with jitter. */
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
