package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/datasource"
	dschema "github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	pschema "github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/resource/schema/stringplanmodifier"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

func main() {
	err := providerserver.Serve(context.Background(), func() provider.Provider { return &fake{} },
		providerserver.ServeOpts{Address: "unwind.test/unwind/fake"})
	if err != nil {
		log.Fatal(err)
	}
}

type fake struct{}

func (*fake) Metadata(_ context.Context, _ provider.MetadataRequest, r *provider.MetadataResponse) {
	r.TypeName = "fake"
}

func (*fake) Schema(_ context.Context, _ provider.SchemaRequest, r *provider.SchemaResponse) {
	r.Schema = pschema.Schema{Attributes: map[string]pschema.Attribute{"dir": pschema.StringAttribute{Required: true}}}
}

func (*fake) Configure(ctx context.Context, q provider.ConfigureRequest, r *provider.ConfigureResponse) {
	var c struct {
		Dir types.String `tfsdk:"dir"`
	}
	r.Diagnostics.Append(q.Config.Get(ctx, &c)...)
	r.ResourceData = c.Dir.ValueString()
}

func (*fake) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{func() resource.Resource { return &thing{} }}
}

func (*fake) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{func() datasource.DataSource { return external{} }}
}

// external is the data source external: it runs a program, as that of hashicorp/external does.
type external struct{}

func (external) Metadata(_ context.Context, _ datasource.MetadataRequest, r *datasource.MetadataResponse) {
	r.TypeName = "external"
}

func (external) Schema(_ context.Context, _ datasource.SchemaRequest, r *datasource.SchemaResponse) {
	r.Schema = dschema.Schema{Attributes: map[string]dschema.Attribute{
		"program": dschema.ListAttribute{Required: true, ElementType: types.StringType},
		"result":  dschema.MapAttribute{Computed: true, ElementType: types.StringType},
	}}
}

func (external) Read(ctx context.Context, q datasource.ReadRequest, r *datasource.ReadResponse) {
	var m struct {
		Program []string          `tfsdk:"program"`
		Result  map[string]string `tfsdk:"result"`
	}
	var program types.List
	r.Diagnostics.Append(q.Config.GetAttribute(ctx, path.Root("program"), &program)...)
	r.Diagnostics.Append(program.ElementsAs(ctx, &m.Program, false)...)
	if r.Diagnostics.HasError() {
		return
	}
	said, err := exec.CommandContext(ctx, m.Program[0], m.Program[1:]...).Output()
	if err == nil {
		err = json.Unmarshal(said, &m.Result)
	}
	if err != nil {
		r.Diagnostics.AddError("the program failed", err.Error())
		return
	}
	r.Diagnostics.Append(r.State.Set(ctx, m)...)
}

// thing is the resource fake_thing.
type thing struct{ dir string }

// model is its configuration and state. Another name replaces it.
type model struct {
	ID      types.String `tfsdk:"id"`
	Name    types.String `tfsdk:"name"`
	Content types.String `tfsdk:"content"`
	Secret  types.String `tfsdk:"secret"`
	// DelayMS is how long making or changing it takes after it was written.
	DelayMS types.Int64 `tfsdk:"delay_ms"`
	// Fail is "before" (making it fails and nothing was written), "after" (it fails, was written, and
	// no id is told), "tainted" (it fails, was written, and the id is told), "update", or "claimed"
	// (removing it removes nothing, and says it did).
	Fail types.String `tfsdk:"fail"`
}

func (*thing) Metadata(_ context.Context, _ resource.MetadataRequest, r *resource.MetadataResponse) {
	r.TypeName = "fake_thing"
}

func (*thing) Schema(_ context.Context, _ resource.SchemaRequest, r *resource.SchemaResponse) {
	r.Schema = schema.Schema{Attributes: map[string]schema.Attribute{
		"id": schema.StringAttribute{Computed: true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.UseStateForUnknown()}},
		"name": schema.StringAttribute{Required: true,
			PlanModifiers: []planmodifier.String{stringplanmodifier.RequiresReplace()}},
		"content":  schema.StringAttribute{Optional: true},
		"secret":   schema.StringAttribute{Optional: true, Sensitive: true},
		"delay_ms": schema.Int64Attribute{Optional: true},
		"fail":     schema.StringAttribute{Optional: true},
	}}
}

func (t *thing) Configure(_ context.Context, q resource.ConfigureRequest, _ *resource.ConfigureResponse) {
	if dir, ok := q.ProviderData.(string); ok {
		t.dir = dir
	}
}

// object is what stands in the file.
type object struct {
	Name    string `json:"name"`
	Content string `json:"content"`
}

func (t *thing) file(id string) string { return filepath.Join(t.dir, id+".json") }

func (t *thing) write(m model) error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return err
	}
	b, err := json.Marshal(object{m.Name.ValueString(), m.Content.ValueString()})
	if err != nil {
		return err
	}
	file := t.file(m.ID.ValueString())
	if err := os.WriteFile(file+".new", b, 0o644); err != nil {
		return err
	}
	return os.Rename(file+".new", file) // who looks sees all of it or nothing
}

func (m model) wait() { <-time.After(time.Duration(m.DelayMS.ValueInt64()) * time.Millisecond) }

func (t *thing) Create(ctx context.Context, q resource.CreateRequest, r *resource.CreateResponse) {
	var m model
	r.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	id := make([]byte, 4)
	rand.Read(id)
	m.ID = types.StringValue(hex.EncodeToString(id))
	if m.Fail.ValueString() == "before" {
		r.Diagnostics.AddError("not made", "nothing was written")
		return
	}
	if err := t.write(m); err != nil {
		r.Diagnostics.AddError("not made", err.Error())
		return
	}
	m.wait()
	switch m.Fail.ValueString() {
	case "after":
		r.Diagnostics.AddError("made, and lost", "the file was written; no id is told")
		return
	case "tainted":
		r.Diagnostics.AddError("made, but not well", "the file was written; its id is told")
	}
	r.Diagnostics.Append(r.State.Set(ctx, m)...)
}

func (t *thing) Read(ctx context.Context, q resource.ReadRequest, r *resource.ReadResponse) {
	var m model
	r.Diagnostics.Append(q.State.Get(ctx, &m)...)
	b, err := os.ReadFile(t.file(m.ID.ValueString()))
	if os.IsNotExist(err) {
		r.State.RemoveResource(ctx)
		return
	}
	var o object
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		r.Diagnostics.AddError("not readable", err.Error())
		return
	}
	m.Name = types.StringValue(o.Name)
	if o.Content != "" {
		m.Content = types.StringValue(o.Content)
	}
	r.Diagnostics.Append(r.State.Set(ctx, m)...)
}

func (t *thing) Update(ctx context.Context, q resource.UpdateRequest, r *resource.UpdateResponse) {
	var m model
	r.Diagnostics.Append(q.Plan.Get(ctx, &m)...)
	if m.Fail.ValueString() == "update" {
		r.Diagnostics.AddError("not changed", "nothing was written")
		return
	}
	if err := t.write(m); err != nil {
		r.Diagnostics.AddError("not changed", err.Error())
		return
	}
	m.wait()
	r.Diagnostics.Append(r.State.Set(ctx, m)...)
}

func (t *thing) Delete(ctx context.Context, q resource.DeleteRequest, r *resource.DeleteResponse) {
	var m model
	r.Diagnostics.Append(q.State.Get(ctx, &m)...)
	if m.Fail.ValueString() == "claimed" {
		return
	}
	if err := os.Remove(t.file(m.ID.ValueString())); err != nil && !os.IsNotExist(err) {
		r.Diagnostics.AddError("not removed", err.Error())
	}
}

func (*thing) ImportState(ctx context.Context, q resource.ImportStateRequest, r *resource.ImportStateResponse) {
	resource.ImportStatePassthroughID(ctx, path.Root("id"), q, r)
}
