// Somebody who collects what a subscription brings.
import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { inspect } from 'node:util'

// until waits for something to become so. The runner limits the time.
export async function until(done) {
  while (!done()) await sleep(10)
}

// plain is data without what a client's cache asks for and adds.
export function plain(data) {
  return JSON.parse(JSON.stringify(data, (key, value) => (key === '__typename' ? undefined : value)))
}

// said is all that an error says, whichever client wraps it.
export const said = (err) => inspect(err, { depth: 8, breakLength: Infinity })

export class Listener {
  blocks = []
  told = [] // errors within results
  trouble = undefined // the error or the end that it ended with

  constructor(line, operation) {
    this.leave = line.listen(operation, {
      next: (data) => this.blocks.push(plain(data).blocks),
      told: (errors) => this.told.push(...errors),
      error: (err) => (this.trouble ??= err ?? new Error('an error that says nothing')),
      complete: () => (this.trouble ??= new Error('completed by the server')),
    })
  }

  get complaint() {
    return this.trouble ?? this.told[0]
  }

  // upTo waits for so many blocks.
  async upTo(count) {
    await until(() => this.complaint || this.blocks.length >= count)
    if (this.complaint) assert.fail(`after ${this.blocks.length} of ${count} blocks: ${said(this.complaint)}`)
    return this.blocks.slice(0, count)
  }

  // refused waits for what it is refused with.
  async refused() {
    await until(() => this.complaint || this.blocks.length > 0)
    assert.equal(this.blocks.length, 0, 'it was admitted')
    return this.complaint
  }
}
