package mcp

import "github.com/seed-62bf7108/unwind/workflows/protocol"

// Branch is an attempt that was put aside by a rollback.
type Branch struct {
	Name      string   `json:"name"`
	Savepoint string   `json:"savepoint" jsonschema:"where it begins"`
	Score     *float64 `json:"score,omitempty"`
	Note      string   `json:"note,omitempty"`
	Steps     []string `json:"steps" jsonschema:"ids of its steps; diff with a step shows what that has returned"`
	Context   *Context `json:"context,omitempty" jsonschema:"what was kept last in it"`
}

func branchesOf(v *protocol.SessionView) (all []Branch) {
	for _, part := range v.TakenBack {
		if part.Branch == nil {
			continue
		}
		b := Branch{Name: part.Branch.Name, Savepoint: part.To, Score: part.Branch.Score, Note: part.Branch.Note,
			Context: contextOf(part.Context)}
		for _, s := range part.Steps {
			b.Steps = append(b.Steps, s.ID)
		}
		all = append(all, b)
	}
	return all
}

// branch is what a rollback keeps what it undoes as; nil for nothing.
func (in rollbackInput) branch() (*protocol.Branch, error) {
	switch {
	case in.Branch != "":
		return &protocol.Branch{Name: in.Branch, Score: in.Score, Note: in.Note}, nil
	case in.Score != nil || in.Note != "":
		return nil, Problem{BadParameter, "score and note are about a branch: give branch, a name for it, as well"}
	}
	return nil, nil
}
