variable "release" { type = string }
variable "regions" { type = set(string) }

variable "objects" {
  type        = string
  description = "The folder in which each object is a file of its id: it must be absolute."
}

resource "terraform_data" "current" {
  input = var.release
}

resource "terraform_data" "object" {
  for_each = var.regions
  input    = var.objects

  provisioner "local-exec" {
    command = "printf '%s' '${each.key}' >'${self.input}/${self.id}'"
  }
  provisioner "local-exec" {
    when    = destroy
    command = "rm '${self.input}/${self.id}'"
  }
}

output "release" {
  value = terraform_data.current.output
}
