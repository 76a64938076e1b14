-- expect: 2: optimizer takes one table
return optimizer "adamw"
