// The address form. It shows a balance and queries it again when blocks arrive.
import { data } from './api.js'

const query = 'query balance($address: String!) { blockchain { account(address: $address) { info { address balance(format: DEC) } } } }'
const pace = 1000 // minimum time between two queries, in milliseconds

export class Account {
  address = ''
  asking = false
  asked = 0

  constructor(form, { balance, at }) {
    Object.assign(this, { input: form.elements.address, balance, at })
    form.addEventListener('submit', (event) => {
      event.preventDefault()
      this.watch(this.input.value.trim() || this.input.placeholder)
    })
  }

  watch(address) {
    this.address = this.input.value = address
    this.asked = 0
    this.show({ text: '' })
    this.refresh()
  }

  // turn switches to another project.
  turn(to) {
    this.to = to
    this.asked = 0
    this.refresh()
  }

  // refresh is called for each block and queries the balance. A call that comes too soon
  // is delayed and not dropped, because its block may be the last one for a long time.
  async refresh(block) {
    clearTimeout(this.later)
    if (!this.address) return
    const wait = this.asking ? pace : this.asked + pace - Date.now()
    if (wait > 0) {
      this.later = setTimeout(() => this.refresh(block), wait)
      return
    }
    const { address, to } = this
    this.asking = true
    this.asked = Date.now()
    const found = await data(to, query, { address }).catch((err) => err)
    this.asking = false
    if (address !== this.address || to !== this.to) return this.refresh(block)
    if (found instanceof Error) {
      this.show({ text: found.message, bad: true })
      if (found.extensions?.code === 'BAD_USER_INPUT') this.address = '' // the next block cannot make the address valid
      return
    }
    const { balance } = found.blockchain.account.info
    this.show({ text: units(balance), more: `in nano-units: ${balance}${block ? `, after block ${block.workchain_id}:${block.seq_no}` : ''}` })
  }

  show({ text, more = '', bad = false }) {
    if (this.balance.textContent !== text) this.balance.textContent = text // otherwise screen readers would read it again
    this.balance.classList.toggle('bad', bad)
    this.input.setAttribute('aria-invalid', bad)
    this.at.textContent = more
  }
}

// units converts nano-units to units: one unit is 1,000,000,000 nano-units.
function units(nano) {
  const digits = nano.padStart(10, '0')
  return `${BigInt(digits.slice(0, -9)).toLocaleString('en')}.${digits.slice(-9)}`
}
