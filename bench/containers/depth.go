package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// depthTarget is the most that a checkpoint over many others may take, against one over few; ends are how many of the first
// and of the last ones count.
const (
	depthTarget = 1.5
	ends        = 100
)

// depth are checkpoints of one container, each over all before it, as medians in milliseconds.
type depth struct {
	Checkpoints int     `json:"checkpoints"`
	First       float64 `json:"first_hundred_ms"`
	Last        float64 `json:"last_hundred_ms"`
	Ratio       float64 `json:"ratio"`
}

// deep takes n checkpoints of a container in which a command writes between any two.
func (r *run) deep(ctx context.Context, n int) (d depth, err error) {
	source, err := r.source(load{})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	b, err := r.layered(ctx, source)
	defer func() { err = errors.Join(err, b.end()) }()
	if err != nil {
		return d, err
	}
	var all []float64
	for i := range n {
		if err := r.exec(ctx, b.id, fmt.Sprintf("echo %d >/written-%d", i, i)); err != nil {
			return d, err
		}
		took, err := b.take(fmt.Sprint(i))
		if err != nil {
			return d, fmt.Errorf("checkpoint %d: %w", i, err)
		}
		all = append(all, took)
	}
	d = depth{Checkpoints: n, First: median(all[:ends]), Last: median(all[n-ends:])}
	d.Ratio = d.Last / d.First
	return d, nil
}

// measureDepth prints what deep has measured.
func (r *run) measureDepth(ctx context.Context, n int) (figures any, missed []string, err error) {
	d, err := r.deep(ctx, n)
	if err != nil {
		return nil, nil, fmt.Errorf("%d checkpoints: %w", n, err)
	}
	fmt.Printf("%d checkpoints of one container, a command between any two: the first %d took %s ms each, the last %s ms: %.2fx\n\n",
		n, ends, ms(d.First), ms(d.Last), d.Ratio)
	if d.Ratio > depthTarget {
		missed = []string{fmt.Sprintf("the last of %d checkpoints take %.2f times as long as the first, not at most %.1f", n, d.Ratio, depthTarget)}
	}
	return map[string]any{"engine": r.version, "driver": r.driver, "depth": d}, missed, nil
}
