package shop

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

// prober asks a URL again and again, and adds up for how long it did not answer, or answered with
// an error, by what was being done at the time.
type prober struct {
	url string

	mu    sync.Mutex
	times []spell
}

// spell is how the URL was while one thing was done.
type spell struct {
	doing string
	// calm: nothing of what was done may stop the application.
	calm         bool
	down, broken time.Duration
}

const probePause = 20 * time.Millisecond

// during says what is done from now on.
func (p *prober) during(doing string, calm bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, spell{doing: doing, calm: calm})
}

// probe asks until ctx ends.
func (p *prober) probe(ctx context.Context) {
	again := time.NewTicker(probePause)
	defer again.Stop()
	for last := time.Now(); ; {
		p.mu.Lock()
		now := len(p.times) - 1
		p.mu.Unlock()
		status, _, err := get(ctx, p.url)
		if ctx.Err() != nil {
			return
		}
		took := time.Since(last)
		last = last.Add(took)
		p.mu.Lock()
		switch {
		case err != nil:
			p.times[now].down += took
		case status != http.StatusOK:
			p.times[now].broken += took
		}
		p.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}

// answerLimit is how long an answer may take.
const answerLimit = 10 * time.Second

// visitor makes a connection for each request: one that is kept would end with the application.
var visitor = &http.Client{Timeout: answerLimit, Transport: &http.Transport{DisableKeepAlives: true}}

func get(ctx context.Context, url string) (status int, body string, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, "", err
	}
	response, err := visitor.Do(request)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	return response.StatusCode, string(raw), err
}
