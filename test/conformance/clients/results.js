// Conversion of protocol results, {data, errors}, to adapter results: data or an
// error.

// into returns an observer that passes results on to a sink. Errors in a result
// do not always end the subscription, so they are passed to sink.resultErrors if
// it exists, and otherwise to sink.error.
export function into(sink) {
  return {
    next({ data, errors, error }) {
      if (error) sink.error(error)
      else if (errors?.length > 0) (sink.resultErrors ?? sink.error)(errors)
      else sink.next(data)
    },
    error: sink.error,
    complete: sink.complete,
  }
}

// once returns the first result of an operation.
export function once(listen) {
  return new Promise((resolve, reject) => {
    listen({ next: resolve, error: reject, complete: () => reject(new Error('the operation completed without a result')) })
  })
}
