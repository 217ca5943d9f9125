package containers

import (
	"context"
	"errors"
	"fmt"
	"os"
)

// depthTarget is the most that a checkpoint over many others may take, against one over few; ends
// are how many of the first and of the last ones count.
const (
	depthTarget = 1.5
	ends        = 100
)

// depth are checkpoints of one container, each over all before it, as medians in milliseconds.
type depth struct {
	Checkpoints int     `json:"checkpoints"`
	First       float64 `json:"first_hundred_ms"`
	Last        float64 `json:"last_hundred_ms"`
	// Beside are the first hundred of another container, taken in turn with the last hundred: machines
	// differ from themselves by more than depths do. Ratio is the last hundred over them.
	Beside float64 `json:"first_hundred_beside_ms"`
	Ratio  float64 `json:"ratio"`
}

// deep takes n checkpoints of a container in which a command writes between any two.
func (r *run) deep(ctx context.Context, n int) (d depth, err error) {
	source, err := r.source(load{})
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(source)) }()
	many, err := r.newLayeredBox(ctx, source)
	defer func() { err = errors.Join(err, many.removeBox()) }()
	if err != nil {
		return d, err
	}
	few, err := r.newLayeredBox(ctx, source)
	defer func() { err = errors.Join(err, few.removeBox()) }()
	if err != nil {
		return d, err
	}
	var all, beside []float64
	for i := range n {
		took, err := many.addLayer(i)
		if err != nil {
			return d, err
		}
		all = append(all, took)
		if i < n-ends {
			continue
		}
		if took, err = few.addLayer(i); err != nil {
			return d, err
		}
		beside = append(beside, took)
	}
	d = depth{Checkpoints: n, First: median(all[:ends]), Last: median(all[n-ends:]), Beside: median(beside)}
	d.Ratio = d.Last / d.Beside
	return d, nil
}

// addLayer has a command write, and takes a checkpoint.
func (b layeredBox) addLayer(i int) (took float64, err error) {
	if err := b.exec(b.ctx, b.id, fmt.Sprintf("echo %d >/written-%d", i, i)); err != nil {
		return 0, err
	}
	if took, err = b.takeCheckpoint(fmt.Sprint(i)); err != nil {
		return 0, fmt.Errorf("checkpoint %d: %w", i, err)
	}
	return took, nil
}

// measureDepth prints what deep has measured.
func (r *run) measureDepth(ctx context.Context, n int) (figures any, missed []string, err error) {
	d, err := r.deep(ctx, n)
	if err != nil {
		return nil, nil, fmt.Errorf("%d checkpoints: %w", n, err)
	}
	fmt.Printf("%d checkpoints of one container, a command between any two: the first %d took %s ms each, the "+
		"last %s ms, "+
		"and the first of another container, side by side with them, %s ms: %.2fx\n\n", n, ends, ms(d.First), ms(d.Last),
		ms(d.Beside), d.Ratio)
	if d.Ratio > depthTarget {
		missed = []string{
			fmt.Sprintf("the last of %d checkpoints take %.2f times as long as the first of another container, not at most %.1f",
				n, d.Ratio, depthTarget)}
	}
	return map[string]any{"engine": r.version, "driver": r.driver, "depth": d}, missed, nil
}
