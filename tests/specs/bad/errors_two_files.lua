-- expect: 7: 'gr' is not declared
-- expect: 8: rowsum needs a value that varies by element
-- rule: sgd
-- with: errors_two_files,errors_two_files2
return wrapper {
  name = "errors_two_files", step = function()
    g = gr
    local r = rowsum(t)
    inner()
  end,
}
