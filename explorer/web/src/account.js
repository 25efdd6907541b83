// The address box: a balance, asked again when blocks come.
import { data } from './api.js'

const query = 'query balance($address: String!) { blockchain { account(address: $address) { info { address balance(format: DEC) } } } }'
const pace = 1000 // between two questions, at least

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

  // turn is to another project.
  turn(to) {
    this.to = to
    this.asked = 0
    this.refresh()
  }

  // refresh is called with each block. What comes too soon has its turn later: it may
  // be the last for long.
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
      if (found.extensions?.code === 'BAD_USER_INPUT') this.address = '' // it is no better at the next block
      return
    }
    const { balance } = found.blockchain.account.info
    this.show({ text: units(balance), more: `in nano-units: ${balance}${block ? `, after block ${block.workchain_id}:${block.seq_no}` : ''}` })
  }

  show({ text, more = '', bad = false }) {
    if (this.balance.textContent !== text) this.balance.textContent = text // or else it is read out again
    this.balance.classList.toggle('bad', bad)
    this.input.setAttribute('aria-invalid', bad)
    this.at.textContent = more
  }
}

// units are a thousand million nano-units each.
function units(nano) {
  const digits = nano.padStart(10, '0')
  return `${BigInt(digits.slice(0, -9)).toLocaleString('en')}.${digits.slice(-9)}`
}
