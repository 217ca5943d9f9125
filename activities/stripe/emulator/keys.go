package emulator

import (
	"net/http"
	"time"
)

// keyLife is how long an idempotency key is remembered.
const keyLife = 24 * time.Hour

// keyRecord is the use of an idempotency key.
type keyRecord struct {
	endpoint string
	params   string
	at       time.Time
	running  bool
	answer   answer
}

// answerCall carries out a call, once per key.
func (e *Emulator) answerCall(c *call, f *Fault) answer {
	if c.method != http.MethodPost || c.key == "" {
		e.mu.Lock()
		defer e.mu.Unlock()
		return e.perform(c, f)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	keys, now := e.accountFor(c.account).keys, e.options.Now()
	s := keys[c.key]
	if s != nil && now.Sub(s.at) >= keyLife {
		s = nil
	}
	endpoint, params := c.method+" "+c.path, c.form.Encode()
	switch {
	case s != nil && s.running:
		e.seenWaiting(c, f)
		return (&apiError{status: http.StatusConflict, kind: "idempotency_error", code: "idempotency_key_in_use",
			message: "There is currently another in-progress request using this idempotency key"}).answer()
	case s != nil && s.endpoint != endpoint:
		return (&apiError{status: http.StatusBadRequest, kind: "idempotency_error",
			message: "Keys for idempotent requests can only be used for the same endpoint they were first used for"}).answer()
	case s != nil && s.params != params:
		return (&apiError{status: http.StatusBadRequest, kind: "idempotency_error",
			message: "Keys for idempotent requests can only be used with the same parameters they were first " +
				"used with"}).answer()
	case s != nil:
		a := s.answer
		a.replayed = true
		return a
	}
	s = &keyRecord{endpoint: endpoint, params: params, at: now, running: true}
	keys[c.key] = s
	e.seenWaiting(c, f)
	if f != nil && f.Do == Wait {
		e.mu.Unlock()
		select {
		case <-f.Until:
		case <-e.stop:
		}
		e.mu.Lock()
	}
	s.answer, s.running = e.perform(c, f), false
	if !s.answer.save {
		delete(keys, c.key)
	}
	return s.answer
}

// perform routes a call, or fails it as its fault says.
func (e *Emulator) perform(c *call, f *Fault) answer {
	broken := &apiError{status: http.StatusInternalServerError, kind: "api_error", message: "Something went wrong"}
	if f != nil {
		switch f.Do {
		case FailBefore:
			return broken.answer()
		case FailAfter:
			e.route(c)
			return broken.answer()
		case Decline:
			return declined("card_declined", nil).answer()
		}
	}
	return e.route(c)
}
