// A Listener collects the blocks and errors of a subscription.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'

// until waits until done returns true. run.js limits the time.
export async function until(done) {
  while (!done()) await sleep(10)
}

// plain returns data without the fields that a client's cache adds.
export function plain(data) {
  return JSON.parse(JSON.stringify(data, (key, value) => (key === '__typename' ? undefined : value)))
}

// said returns the complete text of an error, including the errors that it wraps.
export const said = (err) => inspect(err, { depth: 8, breakLength: Infinity })

export class Listener {
  blocks = []
  resultErrors = [] // errors in results
  trouble = undefined // the reason for the end of the subscription

  constructor(line, operation) {
    this.leave = line.listen(operation, {
      next: (data) => this.blocks.push(plain(data).blocks),
      resultErrors: (errors) => this.resultErrors.push(...errors),
      error: (err) => (this.trouble ??= err ?? new Error('the subscription ended with an undefined error')),
      complete: () => (this.trouble ??= new Error('the server completed the subscription')),
    })
  }

  get complaint() {
    return this.trouble ?? this.resultErrors[0]
  }

  // upTo waits for count blocks and returns them.
  async upTo(count) {
    await until(() => this.complaint || this.blocks.length >= count)
    if (this.complaint) assert.fail(`after ${this.blocks.length} of ${count} blocks: ${said(this.complaint)}`)
    return this.blocks.slice(0, count)
  }

  // refused waits for the error with which the subscription is refused.
  async refused() {
    await until(() => this.complaint || this.blocks.length > 0)
    assert.equal(this.blocks.length, 0, 'the subscription was accepted')
    return this.resultErrors[0] ?? this.trouble // the server may also have completed the subscription
  }
}
